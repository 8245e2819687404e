package local

import "github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"

// JoinSiblings notes with the first run of a request all that the request became, if it could have been several: also a single
// one if there is a place for it.
func JoinSiblings(runs []*engine.Run) {
	alone := len(runs) == 1 && len(runs[0].Together) != 1
	runs[0].Together = nil
	if alone {
		return
	}
	for _, run := range runs {
		runs[0].Together = append(runs[0].Together, engine.Sibling{ID: run.ID, ChatID: run.ChatID})
	}
}
