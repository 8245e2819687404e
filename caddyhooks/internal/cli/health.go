package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"github.com/spf13/cobra"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/terminal"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

func init() {
	verbs = append(verbs, healthVerb)
}

func healthVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "health [--live]",
		Short: "Says whether the instances are ready, for scripts and health checks",
		Long: `
Says whether the instances are ready for webhooks, and why not. It exits with 0 if all of them are, or the one of --instance, and with 1 otherwise,
also if Caddy does not run. An instance whose webhooks are off is ready, too, since it is off by intent: the line says so.

With --live it exits with 1 only if a restart of Caddy would help, and not if a store or an agent is away.`,
		Example: `  caddy hooks health
  caddy hooks health --live || systemctl restart caddy`,
		Args: takesNone,
		RunE: func(cmd *cobra.Command, _ []string) error { return runHealth(cmd) },
	}
	cmd.Flags().Bool("live", false, "ask whether Caddy needs a restart, instead of whether it is ready")
	return cmd
}

// healthTold is what the admin endpoint tells about the health of instances.
type healthTold struct {
	Instances []struct {
		Instance string `json:"instance"`
		Live     bool   `json:"live"`
		Ready    bool   `json:"ready"`
		Reason   string `json:"reason"`
		Webhooks string `json:"webhooks"`

		Reasons []api.HealthProblem `json:"reasons"`
	} `json:"instances"`

	raw []byte
}

// health asks for the health of all instances, those among them that wait for their store.
func (c *adminClient) health(ctx context.Context) (told healthTold, err error) {
	told.raw, err = c.call(ctx, apiCall{path: "/hooks/health", answer: http.StatusServiceUnavailable})
	if err == nil && json.Unmarshal(told.raw, &told) != nil {
		err = c.noHooks()
	}
	return told, err
}

// whyNotReady is why an instance is not ready, "" if it is or is not there.
func (h *healthTold) whyNotReady(name string) string {
	for _, in := range h.Instances {
		if in.Instance == name && !in.Ready {
			return cmp.Or(in.Reason, "it is not ready")
		}
	}
	return ""
}

// lacksRunnersAlone reports whether an instance is not ready because its runners are away, and for no other reason.
func (h *healthTold) lacksRunnersAlone(name string) bool {
	for _, in := range h.Instances {
		if in.Instance == name {
			return len(in.Reasons) > 0 && !slices.ContainsFunc(in.Reasons, func(p api.HealthProblem) bool { return p.Code != api.RunnerAway })
		}
	}
	return false
}

func (h *healthTold) names() (names []string) {
	for _, in := range h.Instances {
		names = append(names, in.Instance)
	}
	return names
}

func runHealth(cmd *cobra.Command) error {
	client, err := NewAdminClient(cmd)
	if err != nil {
		return err
	}
	told, err := client.health(cmd.Context())
	if err != nil {
		return err
	}
	wanted, _ := cmd.Flags().GetString("instance")
	if err := client.checkNames(told.names(), wanted); err != nil {
		return err
	}
	e := &errand{client: client, screen: newScreen(cmd)}
	if wantsJSON(cmd) {
		if err := e.printJSON(told.raw); err != nil {
			return err
		}
	}
	rows, bad := [][]terminal.Text(nil), []string(nil)
	live, _ := cmd.Flags().GetBool("live")
	word := "ready"
	if live {
		word = "live"
	}
	for _, in := range told.Instances {
		if wanted != "" && in.Instance != wanted {
			continue
		}
		state := terminal.Good(word)
		if good := in.Ready && !live || in.Live && live; !good {
			state = terminal.Bad("not " + word)
			bad = append(bad, in.Instance)
		} else if in.Webhooks == "off" && !live {
			state = terminal.Warn(word + ", webhooks are off")
		}
		rows = append(rows, []terminal.Text{terminal.Plain(in.Instance), state, terminal.Plain(in.Reason)})
	}
	if !wantsJSON(cmd) {
		e.screen.Table(nil, rows)
	}
	if bad != nil {
		slices.Sort(bad)
		return fmt.Errorf("not %s: %s", word, text.List(bad))
	}
	return nil
}
