package cli

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/adminclient"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/cli/flags"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/cli/requests"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

func sendVerb() *cobra.Command { return forHook(requests.Send(openCaddy), completeAllHooks) }

func signVerb() *cobra.Command { return forHook(requests.Sign(openCaddy), completeHooks) }

func renderVerb() *cobra.Command { return forHook(requests.Render(openCaddy), completeHooks) }

// forHook has a shell offer hooks as the argument of a verb.
func forHook(cmd *cobra.Command, hooks cobra.CompletionFunc) *cobra.Command {
	cmd.ValidArgsFunction = flags.CompleteOne(hooks)
	return cmd
}

// openCaddy lets requests ask a running Caddy.
func openCaddy(ctx context.Context, cmd *cobra.Command) (requests.Caddy, error) {
	s, err := newSession(ctx, cmd)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// About asks what there is to know about the instance.
func (s *session) About() (about api.About, err error) {
	_, err = s.get("about", nil, &about)
	return about, err
}

// Preview asks what a hook makes of a request, with another template unless that is nil.
func (s *session) Preview(hook string, template *string, asked api.PreviewRequest) (*api.Preview, error) {
	var mapping map[string]json.RawMessage
	if _, err := s.get(mappingPath(hook), nil, &mapping); err != nil {
		return nil, err
	}
	if template != nil {
		mapping["messageTemplate"] = text.JSONString(*template)
	}
	body := text.PlainJSON(map[string]any{
		"mapping": mapping, "payload": string(asked.Payload), "headers": asked.Header, "query": asked.Query.Encode(),
	})
	shown := new(api.Preview)
	_, err := s.call(adminclient.Call{Method: http.MethodPost, Path: "preview", Body: body}, shown)
	return shown, err
}

// WhyOff is why webhooks are off, with the command that helps.
func (s *session) WhyOff(cmd *cobra.Command, reason string) string { return whyOff(cmd, reason) }

// Sign has the running Caddy sign a payload with the secret of a hook. See requests.Parameters.
func (s *session) Sign(hook string, payload []byte, parameters url.Values) (*api.Signature, error) {
	signed := new(api.Signature)
	_, err := s.call(adminclient.Call{Method: http.MethodPost, Path: mappingPath(hook) + "/sign", Query: parameters, Body: payload,
		ContentType: "application/octet-stream"}, signed)
	if err != nil {
		return nil, err
	}
	if len(signed.Headers) == 0 {
		return nil, errors.New("this payload cannot be signed by Caddy: the hook takes a secret as it is, or the URL is signed, too, and not " +
			"known there; use --secret-file, and --url for the URL")
	}
	return signed, nil
}

// Mapping asks for a hook. Its secrets are masked.
func (s *session) Mapping(hook string) (settings.Mapping, error) {
	var m settings.ShownMapping
	_, err := s.get(mappingPath(hook), nil, &m)
	return m.Mapping, err
}
