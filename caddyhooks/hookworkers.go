package caddyhooks

import "fmt"

// hookWorkers are how many runs of hooks are carried out at once, of those hooks that say so.
func (a *activeSettings) hookWorkers() map[string]int {
	limits := make(map[string]int)
	for name, h := range a.hooks {
		if h.Workers > 0 {
			limits[name] = h.Workers
		}
	}
	return limits
}

// warningsAboutWorkers looks for hooks with as many workers as the instance, which is no limit.
func (c *compiler) warningsAboutWorkers(active *activeSettings) (found []warning) {
	for i := range active.settings.Mappings {
		if m := &active.settings.Mappings[i]; m.Workers >= c.rules.workers {
			found = append(found, warning{part{mapping: m.Name},
				fmt.Sprintf("workers is %d, which is no limit: the instance has %d workers for all hooks", m.Workers, c.rules.workers)})
		}
	}
	return found
}
