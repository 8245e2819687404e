package settings

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/caddyconf"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// RunnerChoice says which runner carries out a run that no mapping sends to one.
type RunnerChoice struct {
	Names    []string // of all runners, sorted
	ByTier   map[string]string
	Fallback string
}

// Of returns the name of the runner for a tier.
func (c *RunnerChoice) Of(tier string) string {
	if name, ok := c.ByTier[tier]; ok {
		return name
	}
	return c.Fallback
}

// UnnamedRunner is the name of a runner that was given none.
const UnnamedRunner = "default"

// AreListed ends an error about a name that is none of those.
func AreListed(names []string) string {
	switch len(names) {
	case 0:
		return "are none"
	case 1:
		return "is " + names[0]
	default:
		return "are " + text.List(names)
	}
}

func CheckRunnerName(name string) error {
	switch {
	case !HookName.MatchString(name):
		return errors.New("the name of a runner must be 1 to 64 letters, digits, dots, dashes and underscores, and begin with a letter or digit")
	case slices.Contains(RunnerModules(), name):
		return fmt.Errorf("a runner must not be called %s, which is a kind of runner", name)
	}
	return nil
}

func RunnerModules() []string { return caddyconf.ModuleNames("hooks.runners") }

// Check refuses to enable webhooks without a runner: nobody would carry out the runs.
func (c *RunnerChoice) Check() error {
	if len(c.Names) > 0 {
		return nil
	}
	var lines strings.Builder
	for _, name := range RunnerModules() {
		line, agent := "runner "+name, ""
		if info, err := caddy.GetModule("hooks.runners." + name); err == nil {
			if described, ok := info.New().(interface {
				Usage() (arguments, agent string)
			}); ok {
				var arguments string
				arguments, agent = described.Usage()
				line += " " + arguments
			}
		}
		lines.WriteString("\n  " + strings.TrimRight(fmt.Sprintf("%-36s%s", line, agent), " "))
	}
	return fmt.Errorf("needs a runner, which calls your agent. Write one of these lines in the hooks block:%s\n"+
		`In JSON, echo is "runners": {"default": {"runner": "echo"}}`, lines.String())
}

// readRunnerName reads the name of a runner in a hook.
func readRunnerName(d *caddyfile.Dispenser) (string, error) {
	ahead := *d
	if len(ahead.RemainingArgs()) > 1 {
		return "", d.Err("runner in a hook takes the name of a runner, as in: runner big; the runner itself is set beside the hook, as in: " +
			"runner big http …")
	}
	return caddyconf.Word(d)
}
