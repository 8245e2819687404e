package intake

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/oneline"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/template"
)

// maxSender bounds what tells senders apart, in bytes.
const maxSender = 512

// maxTo bounds a chat that a request chooses, in bytes.
const maxTo = 512

// chosenChat is the chat that a request chooses for the answer, exactly as its values make it: it is used or refused, and never changed.
// It is "" if the chat of the hook is the same for all requests.
func chosenChat(h *settings.Hook, input template.Input) (string, error) {
	if h.ToTemplate == nil || h.Action != engine.Agent {
		return "", nil
	}
	to, err := h.ToTemplate.Strict(input, maxTo)
	var wrong *template.StrictError
	if errors.As(err, &wrong) {
		return "", chatRefused(wrong.Error(), wrong.Error())
	}
	shown := `"` + oneline.Of(to, maxShownChat) + `"`
	if to == "" {
		return "", chatRefused("it is empty", "it is empty")
	}
	if h.ToChannel == nil { // as in a preview without its instance
		return to, nil
	}
	if err := h.ToChannel.ValidTo(to); err != nil {
		return "", chatRefused(fmt.Sprintf("%s is none: %v", shown, err), "it is no chat of the channel "+h.Channel)
	}
	if !settings.AllowsTo(h.ToChannel, to) {
		return "", chatRefused(fmt.Sprintf("%s is not among the chats that may be named on the channel %s", shown, h.Channel),
			"allow_to of the channel "+h.Channel+" does not have it")
	}
	return to, nil
}

// maxShownChat bounds the part of a refused chat that is told.
const maxShownChat = 100

// chatRefused is the answer to a request that chooses no chat. reason is for operators, and the same for many requests.
func chatRefused(problem, reason string) error {
	return &api.Error{Status: http.StatusBadRequest,
		Message: "The values of this request do not give a chat that the answer can go to: " + problem + ".",
		Reason:  "the chat for the answer is refused: " + reason}
}

// showChat puts the chat that the answer goes to into the preview, or why it is refused. inputs are those of all runs.
func showChat(p *api.Preview, h *settings.Hook, inputs []template.Input) {
	if !h.Deliver || h.Action != engine.Agent {
		return
	}
	p.Channel, p.To = h.Channel, h.To
	for i, input := range inputs {
		to, err := chosenChat(h, input)
		if err != nil {
			AddProblem(p, "to", settings.FieldErrorf("to", "is refused with this payload: %s", reasonOf(err)))
			p.To = ""
			return
		}
		if i == 0 && to != "" {
			p.To = to
		}
	}
}

// reasonOf is what operators are told about an answer.
func reasonOf(err error) string {
	var answer *api.Error
	if errors.As(err, &answer) && answer.Reason != "" {
		return answer.Reason
	}
	return err.Error()
}
