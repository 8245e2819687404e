package settings

import (
	"fmt"
)

// HookWorkers are how many runs of hooks are carried out at once, of those hooks that say so.
func (a *Active) HookWorkers() map[string]int {
	limits := make(map[string]int)
	for name, h := range a.Hooks {
		if h.Workers > 0 {
			limits[name] = h.Workers
		}
	}
	return limits
}

// warningsAboutWorkers looks for hooks with as many workers as the instance, which is no limit.
func (c *Compiler) warningsAboutWorkers(active *Active) (found []Warning) {
	for i := range active.Settings.Mappings {
		if m := &active.Settings.Mappings[i]; m.Workers >= c.Rules.Workers {
			found = append(found, Warning{Part{Mapping: m.Name},
				fmt.Sprintf("workers is %d, which is no limit: the instance has %d workers for all hooks", m.Workers, c.Rules.Workers)})
		}
	}
	return found
}
