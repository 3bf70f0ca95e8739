package agent

import (
	"io/fs"
	"math"
	"net/http"
	"path"
	"sort"
	"strconv"
	"syscall"

	mesos "github.com/mesos/mesos-go/api/v1/lib"
	xagent "github.com/mesos/mesos-go/api/v1/lib/agent"

	"tandem/localmesos/internal/wire"
)

func missing(field string) *wire.Error {
	return wire.Errorf(http.StatusBadRequest, "Failed to validate agent::Call: Expecting '%s' to be present", field)
}

// listFiles is LIST_FILES.
func (a *Agent) listFiles(c *xagent.Call_ListFiles) (*xagent.Response, *wire.Error) {
	if c == nil {
		return nil, missing("list_files")
	}
	entries, e := a.entries(c.Path)
	if e != nil {
		return nil, e
	}
	out := &xagent.Response_ListFiles{}
	for _, info := range entries {
		out.FileInfos = append(out.FileInfos, fileInfo(path.Join(path.Clean(c.Path), info.Name()), info))
	}
	return &xagent.Response{Type: xagent.Response_LIST_FILES, ListFiles: out}, nil
}

func fileInfo(p string, info fs.FileInfo) mesos.FileInfo {
	size := uint64(info.Size())
	out := mesos.FileInfo{Path: p, Size_: &size, Mtime: &mesos.TimeInfo{Nanoseconds: info.ModTime().UnixNano()}}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		links, mode := int32(min(st.Nlink, math.MaxInt32)), st.Mode
		uid, gid := strconv.Itoa(int(st.Uid)), strconv.Itoa(int(st.Gid))
		out.Nlink, out.Mode, out.UID, out.GID = &links, &mode, &uid, &gid
	}
	return out
}

// readFilePiece is READ_FILE.
func (a *Agent) readFilePiece(c *xagent.Call_ReadFile) (*xagent.Response, *wire.Error) {
	if c == nil {
		return nil, missing("read_file")
	}
	length := int64(-1)
	if c.Length != nil && *c.Length < maxRead {
		length = int64(*c.Length)
	}
	if c.Offset > math.MaxInt64 {
		return nil, wire.Errorf(http.StatusBadRequest, "offset %d is beyond the end of any file", c.Offset)
	}
	b, size, e := a.piece(c.Path, int64(c.Offset), length)
	if e != nil {
		return nil, e
	}
	return &xagent.Response{Type: xagent.Response_READ_FILE, ReadFile: &xagent.Response_ReadFile{Size_: uint64(size), Data: b}}, nil
}

// listMetrics is GET_METRICS.
func (a *Agent) listMetrics() *xagent.Response_GetMetrics {
	out := &xagent.Response_GetMetrics{}
	for name, v := range a.metrics() {
		out.Metrics = append(out.Metrics, mesos.Metric{Name: name, Value: &v})
	}
	sort.Slice(out.Metrics, func(i, j int) bool { return out.Metrics[i].Name < out.Metrics[j].Name })
	return out
}
