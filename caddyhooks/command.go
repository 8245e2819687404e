package caddyhooks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/oneline"
)

func init() {
	caddycmd.RegisterCommand(caddycmd.Command{
		Name:  "hooks",
		Usage: "<verb>",
		Short: "Works with the hooks of a running Caddy",
		Long: `
Works with the hooks of a running Caddy, through its admin endpoint.

Exit codes: 0 done, 1 refused or failed, 2 wrong usage.`,
		CobraFunc: hooksCommand,
	})
}

// verbs make the commands below `caddy hooks`. Each adds itself in the init function of its file.
var verbs []func() *cobra.Command

// hooksCommand makes the command `caddy hooks` of what its verbs have in common.
func hooksCommand(cmd *cobra.Command) {
	cmd.PersistentFlags().String("address", "", "the admin endpoint of Caddy: host:port, or unix//path (default: $CADDY_ADMIN, or else localhost:2019)")
	cmd.PersistentFlags().String("instance", "", "the hooks instance")
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return exit(cmd, &usageError{err.Error()}) })
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var names []string
		for _, child := range cmd.Commands() {
			if !child.Hidden {
				names = append(names, child.Name())
			}
		}
		if len(args) > 0 {
			return exit(cmd, &usageError{fmt.Sprintf("there is no verb %q; use %s", args[0], listWords(names))})
		}
		return exit(cmd, &usageError{"a verb is missing; use " + listWords(names)})
	}
	for _, verb := range verbs {
		child := verb()
		run, args := child.RunE, child.Args
		child.Args = nil
		child.RunE = func(cmd *cobra.Command, given []string) error {
			if args != nil {
				if err := args(cmd, given); err != nil {
					return exit(cmd, &usageError{err.Error()})
				}
			}
			return exit(cmd, run(cmd, given))
		}
		cmd.AddCommand(child)
	}
}

// usageError says how a command was called in a wrong way.
type usageError struct{ problem string }

func (e *usageError) Error() string { return e.problem }

// exit ends a command. Caddy ends with the code 1 for an error, and knows no other way to get another code.
func exit(cmd *cobra.Command, err error) error {
	var usage *usageError
	if !errors.As(err, &usage) {
		return err
	}
	cmd.SilenceErrors = true
	fmt.Fprintf(cmd.ErrOrStderr(), "Error: %v\nMore: %s --help\n", err, cmd.CommandPath())
	return caddycmd.WrapCommandFuncForCobra(func(caddycmd.Flags) (int, error) { return exitUsage, nil })(cmd, nil)
}

const exitUsage = 2

// adminClient calls the admin endpoint of a running Caddy.
type adminClient struct {
	address   string // as the operator names it
	host      string // for the Host header
	origin    string // "" if none is sent
	operator  string
	transport *http.Transport
}

// newAdminClient reads --address.
func newAdminClient(cmd *cobra.Command) (*adminClient, error) {
	address, _ := cmd.Flags().GetString("address")
	address = orDefault(address, caddy.DefaultAdminListen)
	if rest, ok := strings.CutPrefix(address, "http://"); ok {
		address = strings.TrimSuffix(rest, "/")
	}
	if scheme, _, ok := strings.Cut(address, "://"); ok {
		return nil, &usageError{fmt.Sprintf("the address %q begins with %s://, and the admin endpoint speaks plain HTTP: use host:port or unix//path", address, scheme)}
	}
	const defaultPort = 2019
	parsed, err := caddy.ParseNetworkAddressWithDefaults(address, "tcp", defaultPort)
	// What stands before a slash would be taken for a network.
	isNetwork := parsed.IsUnixNetwork() || strings.HasPrefix(parsed.Network, "tcp")
	if err != nil || !isNetwork || parsed.PortRangeSize() > 1 || parsed.IsFdNetwork() || address == "off" {
		return nil, &usageError{fmt.Sprintf("the address %q is no admin endpoint: use host:port or unix//path", address)}
	}
	c := &adminClient{address: address, operator: operatorName()}
	network, target := parsed.Network, parsed.JoinHostPort(0)
	if parsed.IsUnixNetwork() {
		// Caddy checks neither Host nor Origin there, and refuses any Origin. Permissions may stand behind the path.
		target, _, _ = strings.Cut(parsed.Host, "|")
		c.host = "127.0.0.1"
	} else {
		if parsed.Host == "" {
			target = net.JoinHostPort("localhost", fmt.Sprint(parsed.StartPort))
		}
		c.host, c.origin = target, "http://"+target
	}
	dialer := net.Dialer{Timeout: 5 * time.Second}
	c.transport = &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, network, target)
		},
		// Caddy restarts its admin endpoint at every reload, and drops connections that clients keep.
		DisableKeepAlives:  true,
		DisableCompression: true,
	}
	return c, nil
}

// isSocket reports whether the endpoint is a Unix socket, which not every user of this machine may use.
func (c *adminClient) isSocket() bool { return c.origin == "" }

// operatorName is the name of the user who runs this process.
func operatorName() string {
	name := os.Getenv("USER")
	if current, err := user.Current(); err == nil {
		name = current.Username
	}
	return orDefault(oneline.First(name, maxOperator), "unknown")
}

// sign adds the headers that the admin endpoint wants, the operator and the door.
func (c *adminClient) sign(r *http.Request) {
	r.URL.Scheme, r.URL.Host, r.Host = "http", c.host, c.host
	if c.origin != "" {
		r.Header.Set("Origin", c.origin)
	}
	r.Header.Set(operatorHeader, c.operator)
	r.Header.Set(doorHeader, localDoor)
}

// instances asks for the names of the instances.
func (c *adminClient) instances(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "/hooks/instances", nil)
	if err != nil {
		return nil, err
	}
	c.sign(r)
	resp, err := c.transport.RoundTrip(r)
	if err != nil {
		return nil, c.away(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAdminBody))
	if err != nil {
		return nil, c.away(err)
	}
	var names []string
	if resp.StatusCode == http.StatusOK && json.Unmarshal(body, &names) == nil {
		return names, nil
	}
	if resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusOK {
		return nil, fmt.Errorf("the server at %s has no hooks: it is no Caddy, or one without this module", c.address)
	}
	var refused struct {
		Error string `json:"error"`
	}
	_ = json.Unmarshal(body, &refused) // without it, the status has to do
	return nil, fmt.Errorf("the admin endpoint %s answers %s %s", c.address, resp.Status, oneline.Of(refused.Error, 500))
}

// away says that the admin endpoint does not answer.
func (c *adminClient) away(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		err = op.Err
	}
	return fmt.Errorf("the admin endpoint %s of Caddy cannot be reached (%w): is Caddy running? If its admin endpoint has another address, name it by --address; "+
		"if it is off in the Caddyfile, use hooks_dashboard on a site instead", c.address, err)
}
