package caddyhooks_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// Readers that come back after each reload, as browsers do, get every word once and in order, and then the result. Nobody
// waits for those that are still away when the run ends.
func TestManyReadersGetEveryWordOnceOverReloads(t *testing.T) {
	const readers, words = 200, 2000
	turns := make(chan struct{})
	var told atomic.Int64 // how much of the text the readers have got, all together
	runner := hookstest.StartRunner(t, func(w http.ResponseWriter, r *http.Request, _ hookstest.Turn) {
		w.Header().Set("Content-Type", "text/event-stream")
		out := http.NewResponseController(w)
		_ = out.Flush()
		for i := range words {
			if i%50 == 0 {
				select {
				case <-turns:
				case <-r.Context().Done():
					return
				}
			}
			fmt.Fprintf(w, "event: delta\ndata: {\"text\":\"%d \"}\n\n", i)
			_ = out.Flush()
		}
		_, _ = io.WriteString(w, "event: result\ndata: {}\n\n")
	})
	var text strings.Builder
	for i := range words {
		fmt.Fprintf(&text, "%d ", i)
	}
	want := text.String()
	s := hookstest.StartSite(t, hookstest.Hooks(runner, ""))
	id := s.Accept(`{"message":"speak"}`)
	runner.Next()

	var all, begun sync.WaitGroup
	begun.Add(readers)
	var back atomic.Int64
	for range readers {
		all.Go(func() {
			rd := eventsReader{port: s.Port, run: id, told: &told, begun: sync.OnceFunc(begun.Done)}
			err := rd.readAll()
			rd.begun()
			switch {
			case err != nil:
				t.Error(err)
			case rd.text.String() != want:
				t.Errorf("after %d connections a reader got %d bytes, want %d", rd.opened, rd.text.Len(), len(want))
			case rd.reply != want:
				t.Errorf("the reply has %d bytes", len(rd.reply))
			}
			back.Add(int64(rd.opened - 1))
		})
	}
	begun.Wait()
	said := int64(strings.Index(want, fmt.Sprintf(" %d ", words-50)) + 1) // before the last turn
	for i := range words / 50 {
		if i == words/50-1 { // who came back after the end might get the result alone
			hookstest.Eventually(t, "all readers are back", func() bool { return told.Load() == readers*said })
		}
		turns <- struct{}{}
		if i == words/150 || i == words/75 {
			before := told.Load()
			s.Load(hookstest.Hooks(runner, fmt.Sprint("workers ", i)))
			// They are in the middle of it: some get more before the next words come.
			hookstest.Eventually(t, "readers go on", func() bool { return told.Load() > before })
		}
	}
	all.Wait()
	if back.Load() < readers {
		t.Errorf("readers came back %d times", back.Load())
	}
}

// eventsReader reads the events of a run over connections of its own, one after the other.
type eventsReader struct {
	port, run string
	told      *atomic.Int64
	begun     func() // called at the first answer

	opened int
	last   int64 // event
	text   strings.Builder
	reply  string
}

// readAll reads on until the result has come.
func (rd *eventsReader) readAll() error {
	deadline := time.Now().Add(time.Minute)
	for time.Now().Before(deadline) {
		resp, conn, err := rd.open()
		if err != nil {
			continue // the old server is closing
		}
		rd.opened++
		rd.begun()
		over, err := rd.read(resp.Body)
		conn.Close()
		if over || err != nil {
			return err
		}
	}
	return errors.New("the result does not come")
}

func (rd *eventsReader) open() (*http.Response, net.Conn, error) {
	conn, err := net.Dial("tcp", "127.0.0.1:"+rd.port)
	if err != nil {
		return nil, nil, err
	}
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	last := ""
	if rd.last != 0 {
		last = "Last-Event-ID: " + strconv.FormatInt(rd.last, 10) + "\r\n"
	}
	fmt.Fprintf(conn, "GET %s/events HTTP/1.1\r\nHost: 127.0.0.1:%s\r\nAuthorization: Bearer %s\r\n%s\r\n", hookstest.RunPath(rd.run), rd.port, hookstest.Token, last)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err == nil && resp.StatusCode != 200 {
		err = errors.New(resp.Status)
	}
	if err != nil {
		conn.Close()
		return nil, nil, err
	}
	return resp, conn, nil
}

// read reads one answer, and reports whether it has the result.
func (rd *eventsReader) read(from io.Reader) (over bool, err error) {
	events := make(chan streamEvent)
	go func() {
		defer close(events)
		readFrames(from, events)
	}()
	defer func() {
		for range events { // until the connection ends
		}
	}()
	for event := range events {
		if event.id != "" {
			id, err := strconv.ParseInt(event.id, 10, 64)
			if err != nil || id <= rd.last {
				return false, fmt.Errorf("%s has the id %s after %d", event.name, event.id, rd.last)
			}
			rd.last = id
		}
		var data struct{ Text, Reply string }
		switch event.name {
		case "delta", "result":
			if err := json.Unmarshal([]byte(event.data), &data); err != nil {
				return false, err
			}
			rd.text.WriteString(data.Text)
			rd.told.Add(int64(len(data.Text)))
			if event.name == "result" {
				rd.reply = data.Reply
				return true, nil
			}
		case "reset":
			return false, fmt.Errorf("there is a reset after %d bytes", rd.text.Len())
		}
	}
	return false, nil
}
