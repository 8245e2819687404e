// Command pictures takes the pictures of the dashboard that README.md shows:
//
//	go run ./caddyhooks/internal/pictures
//
// It starts a real Caddy, with a pretend agent and a pretend receiver of callbacks, and needs no network. The counts of the last
// hour are saved before Caddy starts; all runs, deliveries and refused requests that can be seen are made by real requests. Then
// Debian's chromium looks at three pages. It takes about half a minute, most of it for the run that fails.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"time"
)

func main() {
	dir := flag.String("dir", filepath.Join("examples", "dashboard"), "the directory of the pictures")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	if err := takePictures(ctx, *dir); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

// takePictures does everything, and leaves nothing behind but the pictures.
func takePictures(ctx context.Context, dir string) (err error) {
	data, err := os.MkdirTemp("", "caddyhooks-pictures-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(data)
	c, err := newCamera(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	a, err := startAgent(ctx)
	if err != nil {
		return err
	}
	rc, err := startReceiver(ctx)
	if err != nil {
		return err
	}
	defer rc.stop()

	h := &house{data: data, agent: a.url, callbacks: rc.url}
	defer func() {
		c.close() // Caddy would wait for those who look, and for turns that are under way
		a.stop()
		h.stop()
	}()
	if err := h.prepare(ctx); err != nil {
		return fmt.Errorf("preparing the past: %w", err)
	}
	if err := h.start(ctx); err != nil {
		return err
	}
	failed, err := h.sendRequests(ctx, a)
	if err != nil {
		return fmt.Errorf("making runs: %w", err)
	}
	for _, p := range []page{
		{name: "overview", fragment: "#/overview", shows: "alertmanager"},
		{name: "run", fragment: "#/runs/" + failed, shows: "410"},
		{name: "hook", fragment: "#/settings/hooks/github-issues", shows: "sha256=", dark: true},
	} {
		file := filepath.Join(dir, p.name+".png")
		size, err := c.take(h.page(), p, file)
		if err != nil {
			return fmt.Errorf("taking a picture of the page %s: %w", p.name, err)
		}
		fmt.Printf("%s: %d KB\n", file, size/1000)
	}
	return nil
}
