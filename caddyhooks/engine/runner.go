package engine

import (
	"fmt"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/agent"
)

// What runners use of package agent.
type (
	Runner           = agent.Runner
	Redactor         = agent.Redactor
	Selective        = agent.Selective
	Turn             = agent.Turn
	Reply            = agent.Reply
	Progress         = agent.Progress
	Chat             = agent.Chat
	PastTurn         = agent.PastTurn
	FoldedRun        = agent.FoldedRun
	Action           = agent.Action
	Later            = agent.Later
	Abandoner        = agent.Abandoner
	Postponer        = agent.Postponer
	Ask              = agent.Ask
	AskPlace         = agent.AskPlace
	Asker            = agent.Asker
	TakenOnError     = agent.TakenOnError
	InterruptedError = agent.InterruptedError
	CutShortError    = agent.CutShortError
	UnavailableError = agent.UnavailableError
	AnswerError      = agent.AnswerError
)

// Those of its constants.
const (
	Wake           = agent.Wake
	Agent          = agent.Agent
	MemoryDisabled = agent.MemoryDisabled
	MemoryPlain    = agent.MemoryPlain
	MaxTakenOn     = agent.MaxTakenOn
)

// RunnerUnreachableError says that a runner has not taken on the last turns, and is not asked at the moment.
type RunnerUnreachableError struct{ RetryAfter time.Duration }

func (e *RunnerUnreachableError) Error() string { return "the runner is unreachable" }

// RunnerGoneError says that the runner which a run was accepted for is not configured any more.
type RunnerGoneError struct{ Name string }

func (e *RunnerGoneError) Error() string {
	return fmt.Sprintf("runner %q is not configured any more", e.Name)
}
