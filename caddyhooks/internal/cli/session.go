package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"

	"github.com/spf13/cobra"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/adminclient"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/cli/flags"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/terminal"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// session is one use of a verb that asks a running Caddy about an instance.
type session struct {
	ctx      context.Context // ends when the person at the terminal does not want to wait any more
	client   *client
	instance string
	screen   printer
	json     bool // the answer is printed as JSON
}

// client asks a running Caddy.
type client struct{ *adminclient.Client }

// newClient reads --address.
func newClient(cmd *cobra.Command) (*client, error) {
	asked, err := adminclient.New(flags.Text(cmd, "address"))
	if err != nil {
		return nil, flags.WrongUsage(err)
	}
	return &client{asked}, nil
}

// printer prints answers on a screen.
type printer struct{ *terminal.Screen }

// withSession is the RunE of a verb that asks a running Caddy.
func withSession(run func(s *session, cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return flags.Interruptible(func(ctx context.Context, cmd *cobra.Command, args []string) error {
		s, err := newSession(ctx, cmd)
		if err != nil {
			return err
		}
		return run(s, cmd, args)
	})
}

// newSession reads the flags that all verbs have, and chooses the instance. Verbs call it that ask a running Caddy only if they have to.
func newSession(ctx context.Context, cmd *cobra.Command) (*session, error) {
	client, err := newClient(cmd)
	if err != nil {
		return nil, err
	}
	s := &session{ctx: ctx, client: client, screen: newScreen(cmd), json: flags.WantsJSON(cmd)}
	s.instance, err = client.chooseInstance(ctx, flags.Text(cmd, "instance"))
	return s, err
}

func newScreen(cmd *cobra.Command) printer {
	return printer{flags.Screen(cmd)}
}

// chooseInstance is the instance that is wanted, or else the one named default, or else the only one.
func (c *client) chooseInstance(ctx context.Context, wanted string) (string, error) {
	names, err := c.namedInstances(ctx, wanted)
	switch {
	case err != nil:
		return "", err
	case wanted != "":
		return wanted, nil
	case slices.Contains(names, "default"):
		return "default", nil
	case len(names) == 1:
		return names[0], nil
	}
	return "", flags.Usagef("there are several hooks instances: choose one of them by --instance: %s", text.List(names))
}

// namedInstances are the names of all instances, of which there is one at least, and the wanted one if it is not "".
func (c *client) namedInstances(ctx context.Context, wanted string) ([]string, error) {
	names, err := c.Instances(ctx)
	if err != nil {
		return nil, err
	}
	if len(names) == 0 || wanted != "" && !slices.Contains(names, wanted) {
		// It may be there, and wait for its store.
		if health, err := c.health(ctx); err == nil {
			for _, name := range health.names() {
				if why := health.whyNotReady(name); why != "" && (name == wanted || wanted == "") {
					return nil, fmt.Errorf("the hooks instance %q is not ready: %s", name, why)
				}
			}
		}
	}
	return names, c.checkNames(names, wanted)
}

// checkNames says what is wrong if there is no instance, or not the wanted one.
func (c *client) checkNames(names []string, wanted string) error {
	switch {
	case len(names) == 0:
		return fmt.Errorf("the Caddy at %s has no hooks: add a line with the word hooks to a site in its Caddyfile, and reload it", c.Address)
	case wanted != "" && !slices.Contains(names, wanted):
		return fmt.Errorf("there is no hooks instance %q; there is %s", wanted, text.List(names))
	default:
		return nil
	}
}

// get asks for a part of the instance, such as "runs/<id>", and reads the answer into a value. It returns the answer as it came, too. The
// parts of a path are escaped by path.
func (s *session) get(path string, query url.Values, into any) ([]byte, error) {
	return s.call(adminclient.Call{Path: path, Query: query}, into)
}

// call calls the API of the instance: the path of the call is below that of the instance.
func (s *session) call(call adminclient.Call, into any) ([]byte, error) {
	call.Path = s.path(call.Path)
	answer, err := s.client.Call(s.ctx, call)
	if err != nil || into == nil {
		return answer, err
	}
	return answer, s.decode(answer, into)
}

// decode reads an answer of the API, or a part of one.
func (s *session) decode(answer []byte, into any) error {
	if err := json.Unmarshal(answer, into); err != nil {
		return fmt.Errorf("the answer of the admin endpoint %s cannot be read: %w", s.client.Address, err)
	}
	return nil
}

// path is the path of a part of the instance on the admin endpoint.
func (s *session) path(part string) string {
	return "/hooks/instances/" + url.PathEscape(s.instance) + "/" + part
}

// printJSON prints an answer of the API as it came, each value on lines of its own.
func (s *session) printJSON(answer []byte) error {
	if err := terminal.PrintIndented(s.screen.Out(), answer); err != nil {
		return fmt.Errorf("the answer of the admin endpoint %s is no JSON: %w", s.client.Address, err)
	}
	return nil
}

// printedJSON reports whether a command is done with an answer: it is an error, or was printed as JSON since --json was given.
func (s *session) printedJSON(answer []byte, err error) (done bool, _ error) {
	if err != nil || !s.json {
		return err != nil, err
	}
	return true, s.printJSON(answer)
}
