package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/dashboard"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
)

func dashboardVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dashboard [--port N] [--no-open]",
		Short: "Opens the dashboard in a browser",
		Long: `
Serves the dashboard on this machine, and passes its requests on to the admin endpoint of Caddy.

The link that it prints lets one browser in. It works once, and for a minute; press Enter for a new one. The dashboard stays
open while Caddy restarts. Ctrl-C ends it.

The admin endpoint is that of --address, or of the environment variable CADDY_ADMIN. If it is a Unix socket, no browser is
opened, since other users of this machine could read the link from the browser's arguments: open the link yourself.

On a server without a browser, forward a port from your machine, and open the link there:

  ssh -t -L 8765:127.0.0.1:8765 server caddy hooks dashboard --port 8765`,
		RunE: interruptible(runDashboard),
	}
	cmd.Flags().Int("port", 0, "the port on 127.0.0.1 (default: any that is free)")
	cmd.Flags().Bool("no-open", false, "do not open a browser")
	return cmd
}

// runDashboard serves the page until the process is interrupted.
func runDashboard(ctx context.Context, cmd *cobra.Command, _ []string) error {
	port := flagNumber(cmd, "port")
	if port < 0 || port > 65535 {
		return usagef("--port must be a number up to 65535")
	}
	page, err := NewLocalPage(cmd)
	if err != nil {
		return err
	}
	if _, err := page.client.namedInstances(ctx, page.instance); err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return fmt.Errorf("listening on port %d: %w", port, err)
	}
	server := &http.Server{Handler: page.Handler(), ReadHeaderTimeout: 10 * time.Second, ErrorLog: log.New(io.Discard, "", 0)}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()

	link := func() string { return "http://" + listener.Addr().String() + "/?" + page.NewLink() }
	page.welcome(cmd, listener.Addr().(*net.TCPAddr).Port, link())
	lines := make(chan struct{})
	go readLines(ctx, cmd.InOrStdin(), lines) // ends with the process: a terminal cannot be asked to stop
	for {
		select {
		case <-lines:
			fmt.Fprintf(cmd.OutOrStdout(), "%s\n", link())
		case <-ctx.Done():
			_ = server.Close() // streams would go on
			<-served
			return nil
		case err := <-served:
			return fmt.Errorf("serving the dashboard: %w", err)
		}
	}
}

// readLines tells of every line, until there are no more.
func readLines(ctx context.Context, from io.Reader, lines chan<- struct{}) {
	for scanner := bufio.NewScanner(from); scanner.Scan(); {
		select {
		case lines <- struct{}{}:
		case <-ctx.Done():
			return
		}
	}
}

// welcome prints the first link, and opens it.
func (p *LocalPage) welcome(cmd *cobra.Command, port int, link string) {
	out := cmd.OutOrStdout()
	fmt.Fprintf(out, "The dashboard of the Caddy at %s is open. This link works once, and for a minute:\n\n%s\n\n", p.client.address, link)
	if os.Getenv("SSH_CONNECTION") != "" {
		fmt.Fprintf(out, "From your machine, reach it by: ssh -L %d:127.0.0.1:%d <this machine>\n", port, port)
	}
	fmt.Fprintln(out, "Enter: another link. Ctrl-C: end.")
	if flagIsOn(cmd, "no-open") {
		return
	}
	// Other users of this machine can see the arguments of the browser, and could use the code first. They may do everything
	// at an admin endpoint with a port anyway, but not at one that is a socket.
	if open := browserCommand(); open != nil && p.client.origin != "" {
		opener := exec.CommandContext(context.WithoutCancel(cmd.Context()), open[0], append(open[1:], link)...) //nolint:gosec // the link is ours
		if opener.Start() == nil {
			go func() { _ = opener.Wait() }() // a browser that does not open: there is the link
		}
	}
}

// browserCommand opens a browser, nil if there is no display.
func browserCommand() []string {
	switch {
	case runtime.GOOS == "windows":
		return []string{"rundll32", "url.dll,FileProtocolHandler"}
	case os.Getenv("SSH_CONNECTION") != "":
		return nil
	case runtime.GOOS == "darwin":
		return []string{"open"}
	case os.Getenv("DISPLAY") != "" || os.Getenv("WAYLAND_DISPLAY") != "":
		return []string{"xdg-open"}
	}
	return nil
}

// LocalPage is the page on this machine, for the person who started it.
type LocalPage struct {
	client   *client
	instance string // the only one to be shown, "" if these are all
	links    *dashboard.Links
}

// NewLocalPage reads --address and --instance.
func NewLocalPage(cmd *cobra.Command) (*LocalPage, error) {
	client, err := newClient(cmd)
	if err != nil {
		return nil, err
	}
	client.via = api.ViaLocalDashboard
	const renew = "press Enter in the terminal of `caddy hooks dashboard`, and open the link that it prints."
	return &LocalPage{client, flagText(cmd, "instance"), &dashboard.Links{Renew: renew}}, nil
}

// NewLink is the query of a link that lets one browser in.
func (p *LocalPage) NewLink() string { return p.links.New() }

func (p *LocalPage) Handler() http.Handler {
	return p.links.Handler(dashboard.Handler(dashboard.Door{
		Name: api.ViaLocalDashboard,
		Enter: func(r *http.Request) (dashboard.Operator, error) {
			return dashboard.Operator{User: p.client.operator}, p.links.Enter(r)
		},
		Instances: func(r *http.Request) ([]string, error) {
			if p.instance != "" {
				return []string{p.instance}, nil
			}
			names, err := p.client.instances(r.Context())
			if err != nil {
				return nil, &dashboard.Refusal{Status: http.StatusBadGateway, Sentence: err.Error()}
			}
			return names, nil
		},
		API: p.api(),
	}))
}

// Headers that are passed on to the admin endpoint, and back to the browser. Others have a meaning between browser and page:
// the cookie, for example, and the headers that Caddy's admin endpoint knows browsers by.
var (
	requestHeaders  = []string{"Accept", "Content-Type", "If-Match", "If-None-Match", "Last-Event-Id"}
	responseHeaders = []string{"Content-Type", "Content-Length", "Content-Disposition", "Etag", "Retry-After", "Allow"}
)

// api passes requests on to the admin endpoint, and streams as they come.
func (p *LocalPage) api() http.Handler {
	proxy := &httputil.ReverseProxy{
		Transport:     p.client.transport,
		FlushInterval: -1,
		Rewrite: func(pr *httputil.ProxyRequest) {
			pr.Out.Header = selected(pr.In.Header, requestHeaders)
			pr.Out.URL.Path = "/hooks" + pr.In.URL.Path
			if pr.In.URL.RawPath != "" {
				pr.Out.URL.RawPath = "/hooks" + pr.In.URL.RawPath
			}
			p.client.sign(pr.Out)
			if p.instance != "" {
				pr.Out.Header.Set(api.InstanceHeader, p.instance)
			}
		},
		ModifyResponse: func(resp *http.Response) error {
			resp.Header = selected(resp.Header, responseHeaders)
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			var large *http.MaxBytesError
			if errors.As(err, &large) {
				dashboard.WriteError(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("the body is larger than %d bytes", dashboard.MaxBody))
			} else {
				dashboard.WriteError(w, http.StatusBadGateway, p.client.unreachable(err).Error())
			}
		},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p.instance == "" || p.shows(r.URL.Path) {
			proxy.ServeHTTP(w, r)
		} else {
			dashboard.WriteError(w, http.StatusNotFound, fmt.Sprintf("this instance is not shown here: the dashboard was started with --instance %s", p.instance))
		}
	})
}

// shows reports whether a path is one of the instance that is shown, or one at which Caddy tells of that instance alone.
func (p *LocalPage) shows(path string) bool {
	if rest, ok := strings.CutPrefix(path, "/instances/"); ok {
		name, _, _ := strings.Cut(rest, "/")
		return name == p.instance
	}
	return p.instance == "default" || slices.Contains(api.GlobalPaths, path)
}

func selected(from http.Header, names []string) http.Header {
	to := make(http.Header)
	for _, name := range names {
		if values, ok := from[name]; ok {
			to[name] = values
		}
	}
	return to
}
