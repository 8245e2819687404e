package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/terminal"
)

func init() {
	verbs = append(verbs, runnersVerb)
}

func runnersVerb() *cobra.Command {
	return &cobra.Command{
		Use:   "runners",
		Short: "Shows the agents: what they are, and how they fare",
		Long: `
Shows the runners of the Caddyfile, which carry out runs: their kind, the model tiers that they are for, how they fare on this node, how many
turns they carry out now, and when they last answered and failed. A runner that is unreachable or busy takes on no turns, and its runs wait.`,
		Example: `  caddy hooks runners
  caddy hooks runners --json | jq -r '.[] | select(.state != "ok").name'`,
		Args: takesNone,
		RunE: errandVerb(runRunners),
	}
}

func runRunners(e *errand, _ *cobra.Command, _ []string) error {
	var runners []api.Runner
	answer, err := e.get("runners", nil, &runners)
	if err != nil {
		return err
	}
	if e.json {
		return e.printJSON(answer)
	}
	if len(runners) == 0 {
		e.screen.Note("There is no runner: add a line such as \"runner http http://127.0.0.1:8000\" to hooks in the Caddyfile, or runs wait.")
		return nil
	}
	clock := newClock()
	var rows [][]terminal.Text
	for i := range runners {
		r := &runners[i]
		failed := ""
		if r.LastErrorAt != nil {
			failed = clock.when(r.LastErrorAt) + " " + r.LastError
		}
		rows = append(rows, []terminal.Text{terminal.Plain(r.Name), terminal.Plain(runnerKind(r)), terminal.Plain(use(r)), stateCell(r),
			terminal.Plain(withCommas(r.InFlight)), terminal.Plain(clock.when(r.LastOK)), terminal.Plain(shortText(failed, maxReasonCell))})
	}
	e.screen.Table([]string{"RUNNER", "KIND", "FOR", "STATE", "NOW", "LAST GOOD", "LAST FAILED"}, rows)
	return nil
}

// runnerKind says what the runner is.
func runnerKind(r *api.Runner) string {
	words := slices.Compact([]string{r.Module, r.Preset, r.Address}) // the program of a preset mostly has its name
	return strings.Join(slices.DeleteFunc(words, func(word string) bool { return word == "" }), " ")
}

// use says which runs the runner carries out.
func use(r *api.Runner) string {
	var uses []string
	if r.Default {
		uses = append(uses, "all others")
		if len(r.Tiers) == 0 {
			uses[0] = "default"
		}
	}
	return strings.Join(append(r.Tiers, uses...), ", ")
}

// stateCell says how the runner fares.
func stateCell(r *api.Runner) terminal.Text {
	switch {
	case r.Gone:
		return terminal.Faint("gone")
	case r.State == engine.RunnerOK:
		return terminal.Good(r.State)
	case r.State == engine.RunnerUnreachable, r.State == engine.RunnerFailing:
		return terminal.Bad(r.State)
	case r.State == engine.RunnerBusy:
		return terminal.Warn(r.State)
	default:
		return terminal.Plain(r.State)
	}
}
