// Mkimage makes a container image of one directory, without a Dockerfile and
// without pulling anything: an archive in the format of "docker save", which the
// Docker Engine is given when it is there. The same files give the same image.
//
// It is a tool of build.sh; nothing of Tandem depends on it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"
)

func main() {
	os.Exit(run())
}

func run() int {
	load := flag.Bool("load", false, "load the image into the Docker Engine")
	remove := flag.Bool("remove", false, "remove the named images from the Docker Engine")
	out := flag.String("o", "image.tar", "the archive to write")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: mkimage [-load] [-o ARCHIVE] NAME:TAG DIRECTORY\n       mkimage -remove NAME:TAG...")
		flag.PrintDefaults()
	}
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	var err error
	switch {
	case *remove && flag.NArg() > 0:
		err = removeImages(ctx, flag.Args())
	case !*remove && flag.NArg() == 2:
		err = build(ctx, *out, flag.Arg(0), flag.Arg(1), *load)
	default:
		flag.Usage()
		return 2
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mkimage:", err)
		return 1
	}
	return 0
}

// build writes the archive and loads it. The image that had the name before goes,
// as nothing would name it any more.
func build(ctx context.Context, out, name, dir string, load bool) error {
	if err := writeArchive(out, name, dir); err != nil {
		return err
	}
	if !load {
		return nil
	}
	e, err := connect()
	if err != nil {
		return err
	}
	before, err := e.imageID(ctx, name)
	if err != nil {
		return err
	}
	if err := e.load(ctx, out); err != nil {
		return err
	}
	after, err := e.imageID(ctx, name)
	if err != nil {
		return err
	}
	if after == "" {
		return fmt.Errorf("the Docker Engine took %s but has no image %s", out, name)
	}
	if before != "" && before != after {
		// A container may still use it; then it goes with the next build.
		if err := e.remove(ctx, before); err != nil {
			fmt.Fprintln(os.Stderr, "mkimage: the earlier image stays:", err)
		}
	}
	return nil
}

func removeImages(ctx context.Context, names []string) error {
	e, err := connect()
	if err != nil {
		return err
	}
	var errs []error
	for _, n := range names {
		errs = append(errs, e.remove(ctx, n))
	}
	return errors.Join(errs...)
}
