package runnertest

import (
	"fmt"
	"strings"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/usage"
)

// HostileNumbers are JSON values that no agent should report as a number of tokens. A turn does not fail because of them.
var HostileNumbers = []string{
	`-1`, `1.5`, `1e99`, `99999999999999999999999999`, `"7"`, `true`, `[1]`, `{"a":{"b":[1]}}`, `"` + strings.Repeat("9", 1000) + `"`,
}

// Used is what was used by all that a runner reported, as in "gpt-5: 1200 (1000 cached) in, 34 (4 reasoning) out, $0.5". What the engine
// would refuse is "refused".
func Used(reports []usage.Report) string {
	var used []string
	for _, report := range reports {
		use, err := report.Read()
		if err != nil {
			used = append(used, "refused")
			continue
		}
		text := use.Model + ":"
		if use.HasTokens {
			text += fmt.Sprintf(" %d (%d cached) in, %d (%d reasoning) out", use.Input, use.Cached, use.Output, use.Reasoning)
		}
		if use.HasCost {
			text += fmt.Sprintf(" $%g", float64(use.Cost)/usage.Dollar)
		}
		used = append(used, text)
	}
	return strings.Join(used, "; ")
}
