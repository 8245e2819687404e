package requests

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/auth"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/cli/flags"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/terminal"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// Sign is the verb sign.
func Sign(open Opener) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sign {HOOK | --auth SCHEME | --header NAME [--prefix TEXT]} --payload FILE",
		Short: "Prints the headers that sign a payload",
		Long: `
Prints the headers with which a hook accepts a payload, one on each line, as curl reads them.

For a hook, the running Caddy signs, and the secret stays there. With a secret of your own, the scheme of the hook is used with it. With
--auth or --header nothing has to run: --auth names a scheme, such as github, and --header the header of an HMAC signature.

The secret is read from --secret-file or from $HOOKS_SECRET. Otherwise you are asked for it.

  caddy hooks sign github-issues --payload issue.json | curl -H @- --data-binary @issue.json https://example.com/api/hooks/github-issues
  caddy hooks sign --auth stripe --secret-file stripe.secret --payload event.json
  caddy hooks sign --header X-Signature --prefix sha256= --secret-file my.secret --payload - < body.json`,
		Args: flags.TakesOneAtMost,
		RunE: flags.Interruptible(open.sign),
	}
	flags.AddText(cmd, "auth", "", "the scheme, as after auth in a Caddyfile: github, stripe, standard, hmac …",
		flags.CompleteWords(signingSchemes()...))
	cmd.Flags().String("header", "", "the header with an HMAC signature")
	cmd.Flags().String("prefix", "", "with --header: what stands before the signature, such as sha256=")
	flags.AddText(cmd, "algorithm", "", "with --header: sha256, sha512 or sha1 (default: sha256)",
		flags.CompleteWords(auth.SHA256, auth.SHA512, auth.SHA1))
	cmd.Flags().String("signed", "", "with --header: what is signed, as in '{@header.X-Timestamp}.{@body}' (default: the body)")
	cmd.Flags().String("timestamp-header", "", "with --header, or --auth grafana: the header with the time of the signature")
	cmd.Flags().String("url", "", "the URL that is called, where that is signed, too, as by Twilio")
	flags.NoFiles(cmd, "header", "prefix", "signed", "timestamp-header", "url")
	hookSecretInput.AddFlags(cmd)
	addPayloadFlag(cmd)
	return cmd
}

// signingSchemes are the names of the schemes by which a payload can be signed here.
func signingSchemes() (names []string) {
	for _, s := range settings.Schemes {
		if s.Signs() {
			names = append(names, s.Name)
		}
	}
	return names
}

func (open Opener) sign(ctx context.Context, cmd *cobra.Command, args []string) error {
	m, byFlags, err := mappingOfFlags(cmd)
	if err != nil {
		return err
	}
	switch {
	case byFlags && len(args) > 0:
		return flags.Usagef("a hook has a scheme already: leave --auth and --header out")
	case !byFlags && len(args) == 0:
		return flags.Usagef("whose signature is missing: the name of a hook, --auth <scheme> or --header <name>")
	}
	if err := hookSecretInput.Check(cmd); err != nil {
		return err
	}
	payload, err := readPayload(cmd)
	if err != nil {
		return err
	}
	var signed *api.Signature
	if byFlags {
		signed, err = signHere(cmd, m, payload)
	} else {
		signed, err = open.signForHook(ctx, cmd, args[0], payload)
	}
	if err != nil {
		return err
	}
	if flags.WantsJSON(cmd) {
		return terminal.PrintJSON(cmd.OutOrStdout(), signed)
	}
	if asked := flags.Text(cmd, "url"); asked != "" && signed.URL != asked {
		flags.Screen(cmd).Note("The URL is signed, too. Call %s", signed.URL)
	}
	for _, h := range signed.Headers { // as curl and HTTP write them
		fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", h.Name, h.Value)
	}
	return nil
}

// mappingOfFlags is the scheme that flags describe, and reports whether there is one.
func mappingOfFlags(cmd *cobra.Command) (m settings.Mapping, given bool, err error) {
	m = settings.Mapping{
		AuthMode: flags.Text(cmd, "auth"), HMACHeader: flags.Text(cmd, "header"), HMACPrefix: flags.Text(cmd, "prefix"),
		Algorithm: flags.Text(cmd, "algorithm"), Signed: flags.Text(cmd, "signed"), TimestampHeader: flags.Text(cmd, "timestamp-header"),
	}
	if m.AuthMode == "" && m.HMACHeader != "" {
		m.AuthMode = "hmac"
	}
	switch {
	case m.AuthMode == "hmac" && m.HMACHeader == "":
		return m, true, flags.Usagef("--header is missing: name the header with the signature")
	case m.AuthMode != "hmac" && (m.HMACHeader+m.HMACPrefix+m.Algorithm+m.Signed != ""):
		return m, true, flags.Usagef("--header, --prefix, --algorithm and --signed describe an HMAC signature: name its header, and no " +
			"other scheme")
	}
	return m, m.AuthMode != "", nil
}

// signHere signs with a secret that is read here.
func signHere(cmd *cobra.Command, m settings.Mapping, payload []byte) (*api.Signature, error) {
	if s := settings.FindScheme(m.AuthMode); s != nil && !s.NeedsSecret() {
		return nil, flags.Usagef("requests with auth %s are not signed", m.AuthMode)
	}
	if settings.FindScheme(m.AuthMode) == nil { // before a secret is asked for
		_, err := newCredential(m, "")
		return nil, err
	}
	secret, err := hookSecretInput.Read(cmd, flags.Screen(cmd))
	if err != nil {
		return nil, err
	}
	c, err := newCredential(m, secret)
	if err != nil {
		return nil, err
	}
	if !c.IsSigned() {
		if _, _, err := c.Headers("", nil, payload, time.Now()); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("requests of %s are not signed: they carry the secret as it is, in the header %s", c.Scheme.Titled(),
			c.OwnHeader()[0].Name)
	}
	headers, called, err := c.Headers(flags.Text(cmd, "url"), nil, payload, time.Now())
	if err != nil {
		return nil, err
	}
	last := headers[len(headers)-1]
	return &api.Signature{Headers: headers, URL: called, Header: last.Name, Value: last.Value}, nil
}

// signForHook has the running Caddy sign or, with a secret that is read here, uses the scheme of its hook.
func (open Opener) signForHook(ctx context.Context, cmd *cobra.Command, hook string, payload []byte) (*api.Signature, error) {
	if settings.IsBuiltIn(hook) {
		return nil, fmt.Errorf("requests to %s are not signed: they carry the token", hook)
	}
	caddy, err := open(ctx, cmd)
	if err != nil {
		return nil, err
	}
	secret, err := hookSecretInput.Find(cmd)
	if err != nil {
		return nil, err
	}
	if secret == "" {
		return caddy.Sign(hook, payload, nil)
	}
	m, err := caddy.Mapping(hook)
	if err != nil {
		return nil, err
	}
	return signHere(cmd, m, payload)
}

// newCredential is settings.NewCredential for a scheme that somebody named.
func newCredential(m settings.Mapping, secret string) (*settings.Credential, error) {
	if m.AuthMode != "" && settings.FindScheme(m.AuthMode) == nil {
		return nil, flags.Usagef("there is no scheme %q; there are %s", text.Abridge(m.AuthMode), text.List(settings.SchemeNames()))
	}
	return settings.NewCredential(m, secret)
}
