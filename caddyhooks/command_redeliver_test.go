package caddyhooks_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// sameNextAttempt makes the time until the next attempt equal.
func sameNextAttempt(printed string) string {
	return regexp.MustCompile(`next attempt in \w+`).ReplaceAllLiteralString(printed, "next attempt in 5s")
}

// giveUp has so many callbacks to a receiver given up.
func giveUp(s *hookstest.Server, rc *moodyReceiver, n int) {
	s.T.Helper()
	rc.status.Store(http.StatusGone)
	query := "status=dead&host=" + rc.host()
	before := len(s.Deliveries(query))
	for i := range n {
		s.CallBack(fmt.Sprint(i), rc.URL+"/back?token=geheim")
	}
	hookstest.Eventually(s.T, "the deliveries are given up", func() bool { return len(s.Deliveries(query)) == before+n })
}

func TestRetryTellsWhatBecameOfDeliveries(t *testing.T) {
	s := hookstest.StartSite(t, echoWithCallbacks)
	good, bad, gone := startMoodyReceiver(t, ""), startMoodyReceiver(t, ""), startMoodyReceiver(t, "")
	giveUp(s, good, 2)
	giveUp(s, bad, 1)
	good.status.Store(http.StatusOK)
	bad.status.Store(http.StatusServiceUnavailable)

	_, errs, err := command(t, "retry", "--dead", "--address", s.Admin)
	wantExit(t, 2, errs, err, "3 deliveries will be sent again. But there is no terminal to ask at: say --yes if you are sure")
	if dead := len(s.Deliveries("status=dead")); dead != 3 {
		t.Errorf("%d are dead", dead)
	}
	out, seen, err := typed(t, "n\n", "retry", "--dead", "--host", "127.0.0.1", "--address", s.Admin)
	wantExit(t, 1, seen, err, "[y/N]", "Error: nothing was done")
	if dead := len(s.Deliveries("status=dead")); dead != 3 || out != "" {
		t.Errorf("%d are dead: %s", dead, out)
	}
	out, seen, err = typed(t, "y\n", "retry", "--dead", "--host", "127.0.0.1", "--address", s.Admin)
	wantExit(t, 0, seen, err, "3 deliveries to 127.0.0.1 will be sent again. Go on? [y/N] ")
	wantGolden(t, "retry", sameNextAttempt(out))

	giveUp(s, gone, 1)
	id := s.Deliveries("status=dead")[0].ID
	out, errs, err = command(t, "retry", id, "--address", s.Admin)
	wantExit(t, 0, errs, err)
	wantGolden(t, "retry-given-up", out)
	gone.status.Store(http.StatusOK)
	out, errs, err = command(t, "retry", id, "--address", s.Admin, "--json")
	wantExit(t, 0, errs, err)
	var sum map[string]int
	if err := json.Unmarshal([]byte(out), &sum); err != nil || sum["retried"] != 1 || sum["delivered"] != 1 {
		t.Errorf("%v %s", err, out)
	}
	_, errs, err = command(t, "retry", id, "--address", s.Admin)
	wantExit(t, 2, errs, err, "The callback to "+gone.URL+"/back has arrived already, and will be sent once more. But there is no terminal")
	out, seen, err = typed(t, "y\n", "retry", id, "--address", s.Admin)
	wantExit(t, 0, seen, err, "will be sent once more. Go on? [y/N] ")
	wantGolden(t, "retry-arrived", out)
	out, errs, err = command(t, "show", id, "--address", s.Admin)
	wantExit(t, 0, errs, err)
	if !strings.Contains(out, ", sent again 1 time after it had arrived") {
		t.Errorf("got %s", out)
	}
	out, errs, err = command(t, "retry", "--dead", "--address", s.Admin)
	wantExit(t, 0, errs, err, "There is nothing to send again.")
	if out != "" {
		t.Errorf("got %s", out)
	}
	out, errs, err = command(t, "retry", "--pending", "--yes", "--wait", "0s", "--address", s.Admin)
	wantExit(t, 0, errs, err)
	if !strings.HasPrefix(out, "1 of 1 put back") {
		t.Errorf("got %s", out)
	}
}

func TestRetryWorksInPages(t *testing.T) {
	s := hookstest.StartSite(t, strings.Replace(echoWithCallbacks, "runner echo", "runner echo\nstore memory", 1))
	rc := startMoodyReceiver(t, "")
	const many = 600 // three pages, and more than are watched
	giveUp(s, rc, many)
	rc.status.Store(http.StatusOK)
	out, errs, err := command(t, "retry", "--dead", "--host", rc.host(), "--yes", "--address", s.Admin)
	wantExit(t, 0, errs, err)
	wantGolden(t, "retry-many", out, " --address "+s.Admin, "")
	hookstest.Eventually(t, "all arrive", func() bool { return len(s.Deliveries("status=delivered")) == many })
}

func TestDropForgetsDeliveries(t *testing.T) {
	s := hookstest.StartSite(t, echoWithCallbacks)
	rc, other := startMoodyReceiver(t, ""), startMoodyReceiver(t, "")
	giveUp(s, rc, 3)
	giveUp(s, other, 1)
	id := s.Deliveries("status=dead&host=" + rc.host())[0].ID
	_, errs, err := command(t, "drop", id, "--address", s.Admin)
	wantExit(t, 2, errs, err, "The callback to "+rc.URL+"/back will be forgotten, and never sent. But there is no terminal")
	out, errs, err := command(t, "drop", id, "--yes", "--address", s.Admin)
	wantExit(t, 0, errs, err)
	if out != "1 of 1 dropped\n" || strings.Contains(out+errs, "geheim") {
		t.Errorf("got %s", out)
	}
	_, errs, err = command(t, "drop", id, "--yes", "--address", s.Admin)
	wantExit(t, 1, errs, err, "there is no delivery")
	out, seen, err := typed(t, "yes\n", "drop", "--dead", "--host", rc.host(), "--json", "--address", s.Admin)
	wantExit(t, 0, seen, err, "2 deliveries to "+rc.host()+" will be forgotten, and never sent. Go on?")
	var sum map[string]int
	if err := json.Unmarshal([]byte(out), &sum); err != nil || sum["dropped"] != 2 {
		t.Errorf("%v %s", err, out)
	}
	if left := s.Deliveries(""); len(left) != 1 {
		t.Errorf("left are %+v", left)
	}
}

func TestRetryAndDropRefuse(t *testing.T) {
	for _, verb := range []string{"retry", "drop"} {
		for _, c := range []struct {
			args []string
			code int
			want string
		}{
			{nil, 2, "say which: the id of a delivery, or --dead, --pending"},
			{[]string{"--host", "a"}, 2, "say which"},
			{[]string{"msg_1", "--dead"}, 2, "name one delivery, or all"},
			{[]string{"--dead", "--host", ""}, 2, "must not be empty"},
			{[]string{"a", "b"}, 2, "is one argument too many"},
			{[]string{"--dead", "--yes"}, 1, "is Caddy running?"},
		} {
			_, errs, err := command(t, append([]string{verb, "--address", "127.0.0.1:1"}, c.args...)...)
			wantExit(t, c.code, errs, err, c.want)
		}
	}
}
