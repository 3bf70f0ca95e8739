package client_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"tandem/processdaemon/client"
	"tandem/processdaemon/protocol"
)

// A task from its creation to its end, with names alone that a program outside of this module may use.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	d := client.New("")
	defer d.Close()

	st, err := d.Create(ctx, &protocol.Spec{ID: "greeter", StartCmd: "sleep 600", Sandbox: "/srv/greeter"})
	for err == nil && st.State == protocol.StatePreparing {
		st, err = d.Poll(ctx, st.ID, st.Version, time.Second)
	}
	if err == nil {
		st, err = d.Start(ctx, st.ID, 10*time.Second)
	}
	if err != nil || st.Phase != protocol.PhaseRunning {
		fmt.Println("it does not run:", st.Failure, err)
		return
	}
	code, err := d.Session(ctx, st.ID, protocol.SessionRequest{Argv: []string{"id", "-un"}}, client.Terminal{Stdout: os.Stdout, Stderr: os.Stderr})
	fmt.Println("exit code", code, err)
	if st, err = d.Stop(ctx, st.ID, 10*time.Second); err == nil {
		fmt.Println(st.Phase)
	}
}
