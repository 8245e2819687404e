package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/adminclient"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/cli/flags"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/terminal"
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
		RunE: flags.Interruptible(runDashboard),
	}
	cmd.Flags().Int("port", 0, "the port on 127.0.0.1 (default: any that is free)")
	cmd.Flags().Bool("no-open", false, "do not open a browser")
	return cmd
}

// runDashboard serves the page until the process is interrupted.
func runDashboard(ctx context.Context, cmd *cobra.Command, _ []string) error {
	port := flags.Number(cmd, "port")
	if port < 0 || port > 65535 {
		return flags.Usagef("--port must be a number up to 65535")
	}
	client, err := newClient(cmd)
	if err != nil {
		return err
	}
	instance := flags.Text(cmd, "instance")
	if _, err := client.namedInstances(ctx, instance); err != nil {
		return err
	}
	page := adminclient.NewLocalPage(client.Client, instance)
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return fmt.Errorf("listening on port %d: %w", port, err)
	}
	server := &http.Server{Handler: page.Handler(), ReadHeaderTimeout: 10 * time.Second, ErrorLog: log.New(io.Discard, "", 0)}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()

	link := func() string { return "http://" + listener.Addr().String() + "/?" + page.NewLink() }
	client.welcome(cmd, listener.Addr().(*net.TCPAddr).Port, link())
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
func (c *client) welcome(cmd *cobra.Command, port int, link string) {
	out := cmd.OutOrStdout()
	fmt.Fprintf(out, "The dashboard of the Caddy at %s is open. This link works once, and for a minute:\n\n%s\n\n", c.Address, link)
	if os.Getenv("SSH_CONNECTION") != "" {
		fmt.Fprintf(out, "From your machine, reach it by: ssh -L %d:127.0.0.1:%d <this machine>\n", port, port)
	}
	fmt.Fprintln(out, "Enter: another link. Ctrl-C: end.")
	if flags.IsOn(cmd, "no-open") {
		return
	}
	// Other users of this machine can see the arguments of the browser, and could use the code first. They may do everything
	// at an admin endpoint with a port anyway, but not at one that is a socket.
	if c.Origin != "" {
		terminal.OpenBrowser(cmd.Context(), link)
	}
}
