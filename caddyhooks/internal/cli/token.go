package cli

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

func init() {
	verbs = append(verbs, tokenVerb)
}

func tokenVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Makes the webhook token, and takes old ones out",
	}
	generate := &cobra.Command{
		Use:   "generate [--keep-old]",
		Short: "Makes a new token, and prints it once",
		Long: `
Makes a new random token, puts it in force, and prints it, and nothing else, on standard output. It is never shown again.

With --keep-old the tokens that were there before work on, until they are taken out. Without, they are refused at once, and you are asked first.

  caddy hooks token generate --keep-old > token
  caddy hooks token retire          # when all callers have the new one`,
		Args: takesNone,
		RunE: errandVerb(runTokenGenerate),
	}
	generate.Flags().Bool("keep-old", false, "let the old tokens work on")
	addYesFlag(generate)
	retire := &cobra.Command{
		Use:   "retire [--number N]",
		Short: "Takes the oldest of several tokens out",
		Long: `
Takes one of several tokens out: the oldest, or the one with a number. Callers that still use it are refused from now on.

  caddy hooks token retire`,
		Args: takesNone,
		RunE: errandVerb(runTokenRetire),
	}
	retire.Flags().Int("number", 1, "which token; 1 is the oldest")
	addYesFlag(retire)
	cmd.AddCommand(generate, retire)
	return cmd
}

func runTokenGenerate(e *errand, cmd *cobra.Command, _ []string) error {
	before, err := e.settings()
	if err != nil {
		return err
	}
	kept, old := 0, len(before.Token)
	if flagIsOn(cmd, "keep-old") {
		kept = old
	} else if err := e.confirmTokens(cmd, before); err != nil {
		return err
	}
	const size = 32
	random := make([]byte, size)
	if _, err := rand.Read(random); err != nil {
		return err
	}
	token := hex.EncodeToString(random)
	// The old tokens go when the new one is printed, and not before: a token that nobody has is of no use.
	after, err := e.patchTokens(before, append(masks(old), token))
	if err != nil {
		return err
	}
	if err := e.printToken(token, kept+1); err != nil {
		_, undone := e.patchTokens(after, append(masks(old), ""))
		return errors.Join(fmt.Errorf("the new token cannot be printed, so it is taken back: %w", err), undone)
	}
	if kept < old {
		if _, err := e.patchTokens(after, append(make([]string, old), text.Mask)); err != nil {
			return fmt.Errorf("the new token is in force, but the old ones are, too: %w", err)
		}
	}
	if e.json {
		return nil
	}
	e.screen.Note("The new token is in force. It is shown this once: give it to the callers now.")
	switch {
	case kept > 0:
		e.screen.Note("%s, until you take it out: %s", oldTokens(kept, "works on", "work on"), nextCommand(cmd, "token", "retire"))
	case len(before.Token) > 0:
		e.screen.Note("%s.", oldTokens(len(before.Token), "is refused from now on", "are refused from now on"))
	}
	e.noteWhyOff()
	return nil
}

// printToken prints a new token, and with --json how many are in force then.
func (e *errand) printToken(token string, inForce int) error {
	if e.json {
		return printValue(e.screen.Out(), struct {
			Token  string `json:"token"`
			Tokens int    `json:"tokens"`
		}{token, inForce})
	}
	_, err := fmt.Fprintln(e.screen.Out(), token)
	return err
}

func oldTokens(n int, one, many string) string {
	if n == 1 {
		return "The old token " + one
	}
	return fmt.Sprintf("The %d old tokens %s", n, many)
}

func masks(n int) []string {
	all := make([]string, n, n+1)
	for i := range all {
		all[i] = text.Mask
	}
	return all
}

// confirmTokens asks before all tokens are replaced.
func (e *errand) confirmTokens(cmd *cobra.Command, before *shownSettings) error {
	if len(before.Token) == 0 {
		return nil
	}
	return confirm(cmd, oldTokens(len(before.Token), "will be refused at once.", "will be refused at once."))
}

// patchTokens replaces the tokens. A mask stands for the token in its place.
func (e *errand) patchTokens(before *shownSettings, tokens []string) (*shownSettings, error) {
	value, err := json.Marshal(tokens)
	if err != nil {
		return nil, err
	}
	return e.patchSettings(before.etag, map[string]json.RawMessage{"token": value})
}

func runTokenRetire(e *errand, cmd *cobra.Command, _ []string) error {
	before, err := e.settings()
	if err != nil {
		return err
	}
	number, _ := cmd.Flags().GetInt("number")
	n := len(before.Token)
	switch {
	case slices.Contains(before.Pinned, "token"):
		return errors.New("the token is set in the Caddyfile: take the old one out there, and reload Caddy")
	case n == 0:
		return errors.New("there is no token")
	case n == 1:
		return fmt.Errorf("there is only one token, and without it webhooks are off: make another one first, with: %s", nextCommand(cmd, "token", "generate", "--keep-old"))
	case number < 1 || number > n:
		return &usageError{fmt.Sprintf("--number must be from 1, the oldest, to %d, the newest", n)}
	}
	if err := confirm(cmd, fmt.Sprintf("Token %d of %d will be refused from now on.", number, n)); err != nil {
		return err
	}
	tokens := masks(n)
	tokens[number-1] = ""
	after, err := e.patchTokens(before, tokens)
	if err != nil {
		return err
	}
	if e.json {
		return printValue(e.screen.Out(), map[string]int{"tokens": len(after.Token)})
	}
	e.screen.Note("Token %d of %d is taken out.", number, n)
	return nil
}
