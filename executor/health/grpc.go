package health

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
)

// grpc asks grpc.health.v1.Health/Check over HTTP/2 without TLS, and is content
// with SERVING. The protocol is that of "gRPC over HTTP2" (PROTOCOL-HTTP2.md) and
// health.proto of the gRPC project.
//
// net/http, which the executor has anyway, speaks HTTP/2 with prior knowledge, and
// one call with one field needs no more; google.golang.org/grpc would add megabytes
// to a program that runs once per taskgroup.
func (p *patient) grpc(ctx context.Context, c *Check) error {
	conn, err := p.dial(ctx, c.Port)
	if err != nil {
		return err
	}
	defer conn.Close()
	var h2c http.Protocols
	h2c.SetUnencryptedHTTP2(true)
	t := &http.Transport{
		Protocols: &h2c, DisableKeepAlives: true, DisableCompression: true,
		DialContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil },
	}
	defer t.CloseIdleConnections()
	to := conn.RemoteAddr().String()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+to+"/grpc.health.v1.Health/Check", bytes.NewReader(grpcRequest(c.Service)))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/grpc")
	req.Header.Set("Te", "trailers")
	req.Header.Set("User-Agent", "tandem-executor")
	resp, err := t.RoundTrip(req)
	if err != nil {
		return fmt.Errorf("%s: %w", to, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answered %s, which no gRPC server does", to, resp.Status)
	}
	const most = 4 << 10
	body, err := io.ReadAll(io.LimitReader(resp.Body, most))
	if err != nil {
		return fmt.Errorf("%s: %w", to, err)
	}
	status := resp.Trailer.Get("Grpc-Status")
	if status == "" {
		// An answer without a message has its status in the headers.
		status = resp.Header.Get("Grpc-Status")
	}
	if status != "0" {
		return fmt.Errorf("%s: %s", to, grpcProblem(status, resp))
	}
	return serving(body)
}

// grpcRequest is a message of one field, service = 1, with its prefix: not
// compressed, and its length.
func grpcRequest(service string) []byte {
	var msg []byte
	if service != "" {
		msg = append(msg, 1<<3|2)
		msg = binary.AppendUvarint(msg, uint64(len(service)))
		msg = append(msg, service...)
	}
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(msg))), msg...)
}

func grpcProblem(status string, resp *http.Response) string {
	switch status {
	case "":
		return "the answer has no gRPC status"
	case "5":
		return "the server does not know the service (NOT_FOUND)"
	case "12":
		return "the server does not implement grpc.health.v1.Health (UNIMPLEMENTED)"
	}
	text := resp.Trailer.Get("Grpc-Message") + resp.Header.Get("Grpc-Message")
	if _, err := strconv.Atoi(status); err != nil {
		status = "unreadable"
	}
	return fmt.Sprintf("gRPC status %s %s", status, text)
}

// servingNames are the values of HealthCheckResponse.ServingStatus.
var servingNames = [...]string{"UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"}

// serving reads a HealthCheckResponse, whose field 1 is the status.
func serving(body []byte) error {
	const prefix = 5
	if len(body) < prefix || body[0] != 0 || int64(binary.BigEndian.Uint32(body[1:prefix])) != int64(len(body)-prefix) {
		return errors.New("the answer is no single gRPC message")
	}
	status, err := firstVarint(body[prefix:])
	switch {
	case err != nil:
		return err
	case status == 1:
		return nil
	case status < uint64(len(servingNames)):
		return fmt.Errorf("the service says %s", servingNames[status])
	}
	return fmt.Errorf("the service says status %d, which is unknown", status)
}

// firstVarint returns field 1 of a protobuf message, 0 when it is not there.
func firstVarint(msg []byte) (value uint64, err error) {
	bad := errors.New("the answer is no protobuf message")
	for len(msg) > 0 {
		key, n := binary.Uvarint(msg)
		if n <= 0 {
			return 0, bad
		}
		msg = msg[n:]
		var skip int
		switch key & 7 {
		case 0:
			v, n := binary.Uvarint(msg)
			if n <= 0 {
				return 0, bad
			}
			if key>>3 == 1 {
				value = v
			}
			skip = n
		case 1:
			skip = 8
		case 2:
			length, n := binary.Uvarint(msg)
			if n <= 0 || length > uint64(len(msg)) {
				return 0, bad
			}
			skip = n + int(length)
		case 5:
			skip = 4
		default:
			return 0, bad
		}
		if skip > len(msg) {
			return 0, bad
		}
		msg = msg[skip:]
	}
	return value, nil
}
