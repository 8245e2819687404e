package settings

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/auth"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/caddyconf"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/lastuse"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/oidc"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/shorthand"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/strictjson"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// Scheme is a way for the callers of a custom hook to authenticate. To add one, write a file scheme_<name>.go that registers
// it in init, and holds an auth.Verifier of its own if none of package auth fits. A sender that signs like others
// is a row of Senders instead.
type Scheme struct {
	// The value of authMode, and the first argument of auth in a Caddyfile; and how people call it.
	Name, Title string

	// The further arguments of auth, as errors show them, and how many there may be.
	arguments        string
	minArgs, maxArgs int

	// unmarshal puts these arguments in the mapping. A scheme that takes a block reads it from d, and notes the places of its
	// lines. Nil: nothing to do.
	unmarshal func(d *caddyfile.Dispenser, args []string, m *Mapping, places SettingPlaces) error

	// The fields of a mapping that unmarshal sets, by their names in JSON. An error about them is reported at the line of
	// auth, unless a line of its block is noted as their place. These are all fields that the scheme reads; others are for
	// other schemes, and a hook that has them is warned about.
	Fields []string

	// Compile makes the verifier of a mapping. Its errors are about fields, and are not wrapped. A verifier of signatures is an
	// auth.Signer, so that operators can try a hook out.
	Compile func(m *Mapping, secrets HookSecrets) (auth.Verifier, error)

	// The time by which a signed timestamp may be off, if the mapping sets none. 0: the scheme has no timestamp.
	Tolerance time.Duration

	// Whether the sender makes the secret, rather than the operator.
	SecretTheirs bool

	// Whether the verifier looks at headers alone. Then the body of a refused request is not read.
	HeadersOnly bool

	// SecretHeaders returns the names of the headers that are kept out of access logs and templates.
	SecretHeaders func(m *Mapping) []string

	// variant changes a copy of the scheme for a mapping. Nil: there is nothing to change.
	variant func(m *Mapping, s Scheme) Scheme

	// What the sender calls a delivery: headers, or else paths in the body, of which the first that is there counts. A delivery that comes
	// again has the same id, whatever its body. In a path, * stands for every item of a list: all of them must have an id.
	idHeaders []string
	idPaths   []string

	// AnswerTo returns the answer to a body with which the sender tries the hook out, and nil for all others. doc has the
	// members in challengeParts, as far as they are there. Nil: the sender does not do that.
	AnswerTo       func(doc map[string]any) *SchemeAnswer
	challengeParts []string

	// newHandshake makes what answers a sender that tries the hook out in other ways: with other methods than POST, before requests are
	// signed, or with an answer that needs a secret. Nil: the sender does not do that.
	newHandshake func(h handshakeParts) handshake

	// The methods beside POST that the handshake answers.
	Methods []string

	// Whether the secret itself is in the body. Then it is taken out of the body before anything else sees that.
	secretInBody bool

	// Whether signatures are good for any body.
	AnyBody bool

	// Members of the body, however deep, whose values are credentials: the secret, a signature, or what opens something at the sender.
	secretMembers []string

	// success returns the status by which the sender knows that a request was delivered. Others it takes for a failure, or sends the
	// request again. doc has the members in challengeParts. 204 is an answer without a body. Nil, or 0: the sender takes any status
	// from 200 to 299.
	success func(doc map[string]any) int

	// Where events name their author. Nil: they do not, or there is no channel of the same name.
	authors *eventAuthors

	// The answer to a refused caller: the WWW-Authenticate header, a sentence after the name of what is missing, and one about a wrong
	// credential. A caller is told no more.
	WwwAuthenticate, Missing, Wrong string
}

// HookSecrets are the secrets that a verifier can be made of.
type HookSecrets struct {
	Tokens  auth.Tokens                  // shared by all hooks
	Resolve func(string) (string, error) // turns a secret as it was configured into the secret itself
	uses    *lastuse.Book
	ofToken []*lastuse.Secret

	// For tokens of issuers: the keys of one, and whether they may be fetched from a URL. Nil where no request is verified.
	keysOf     func(issuer, keysURL string) oidc.Keys
	checkFetch func(url string) error
}

// maxAuthSecrets bounds the secrets of a hook.
const maxAuthSecrets = 8

// list turns the secrets of a field into the secrets themselves. There is at least one.
func (s HookSecrets) list(field string, configured Secrets) ([]string, error) {
	if len(configured) == 0 {
		return nil, FieldErrorf(field, "is missing")
	}
	if len(configured) > maxAuthSecrets {
		return nil, FieldErrorf(field, "must not have more than %d secrets", maxAuthSecrets)
	}
	secrets := make([]string, len(configured))
	for i, text := range configured {
		secret, err := s.Resolve(text)
		if err != nil {
			return nil, FieldErrorf(field, "%v", err)
		}
		if strings.TrimSpace(secret) == "" {
			return nil, FieldErrorf(field, "has a secret that is blank")
		}
		secrets[i] = secret
	}
	return secrets, nil
}

// tolerance is how far a timestamp may be off.
func (m *Mapping) tolerance(usual time.Duration) (time.Duration, error) {
	const most = int(maxTolerance / time.Second)
	if m.AuthTolerance < 0 || m.AuthTolerance > most {
		return 0, FieldErrorf("authTolerance", "must be from 1 to %s", inSeconds(most))
	}
	return cmp.Or(time.Duration(m.AuthTolerance)*time.Second, usual), nil
}

// Schemes has all schemes, sorted by name.
var Schemes []*Scheme

func registerScheme(s *Scheme) {
	Schemes = append(Schemes, s)
	slices.SortFunc(Schemes, func(a, b *Scheme) int { return strings.Compare(a.Name, b.Name) })
}

// FindScheme returns nil if there is no scheme of that name.
func FindScheme(name string) *Scheme {
	for _, s := range Schemes {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// Authentication is how the callers of one hook authenticate. A preview may have none, and then nothing is special about a body.
type Authentication struct {
	*Scheme
	Verifier auth.Verifier
	hidden   auth.HeaderNames  // of headers that carry a secret of the scheme
	unnamed  bool              // callers do not learn the header: it may be a secret in a wrong place
	greet    handshake         // nil if the scheme has none
	inBody   *strings.Replacer // of secrets; nil if none can be there
	consents bool              // to senders of CloudEvents that ask whether they may send
	Secrets  []*lastuse.Secret
}

// SchemeAnswer is the answer to a request with which a sender tries a hook out. No run comes of it.
type SchemeAnswer struct {
	Status      int
	ContentType string
	Body        string
	Header      http.Header // more headers
	Reveal      string      // a secret that the sender tells, for operators
}

// SelectParts selects the parts of a body that challenge, deliveryID and AuthorOf look at.
func (a Authentication) SelectParts(selection *strictjson.Selection) {
	if a.Scheme == nil {
		return
	}
	a.authors.selectParts(selection)
	for _, name := range a.challengeParts {
		selection.Member(name)
	}
	selection.Paths(a.idPaths...)
}

// Challenge returns the answer to a request with which the sender tries the hook out, nil if it is none. The request is
// authenticated already. doc is its body.
func (a Authentication) Challenge(doc any) *SchemeAnswer {
	object, ok := doc.(map[string]any)
	if a.Scheme == nil || a.AnswerTo == nil || !ok {
		return nil
	}
	return a.AnswerTo(object)
}

// SuccessStatus is the status of the answer to a request that is accepted or ignored. It is the usual one unless the sender takes
// that for a failure.
func (a Authentication) SuccessStatus(doc any, usual int) int {
	if a.Scheme == nil || a.success == nil {
		return usual
	}
	object, _ := doc.(map[string]any)
	return cmp.Or(a.success(object), usual)
}

// DeliveryID returns the sender's id of a request, and the name of the header or the path in the body that has it. Both are
// empty if there is none. A request with the same id is a repeated one, whatever its body.
func (a Authentication) DeliveryID(header http.Header, doc any) (id, name string) {
	if a.Scheme == nil {
		return "", ""
	}
	for _, name := range a.idHeaders {
		if values := header[name]; len(values) > 0 && values[0] != "" {
			return values[0], name
		}
	}
	for _, path := range a.idPaths {
		if ids, ok := idsAt(nil, doc, path); ok {
			return strings.Join(ids, ","), path
		}
	}
	return "", ""
}

// idsAt appends the ids at a path. It reports whether there is one, and every item of the lists has one.
func idsAt(ids []string, doc any, path string) ([]string, bool) {
	before, after, isList := strings.Cut("."+path, ".*.")
	if !isList {
		id := strictjson.TextAt(doc, path)
		return append(ids, id), id != ""
	}
	if before != "" {
		doc = strictjson.ValueAt(doc, before[1:])
	}
	items, _ := doc.([]any)
	ok := len(items) > 0
	for _, item := range items {
		if ids, ok = idsAt(ids, item, after); !ok {
			break
		}
	}
	return ids, ok
}

// HidesHeader reports whether a header carries a secret of the scheme, so that templates must not show it.
func (a Authentication) HidesHeader(name string) bool { return a.hidden.Has(name) }

func SchemeNames() (names []string) {
	for _, s := range Schemes {
		names = append(names, s.Name)
	}
	return names
}

// checkSecretField refuses secrets that stand in the field of other schemes alone. A Caddyfile cannot do that.
func (m *Mapping) checkSecretField(s *Scheme) error {
	var read, other string
	for _, field := range SecretFields {
		isSet := len(*field.In(m)) > 0
		switch {
		case !slices.Contains(s.Fields, field.Name):
			if isSet {
				other = field.Name
			}
		case isSet:
			return nil
		default:
			read = field.Name
		}
	}
	if read == "" || other == "" {
		return nil
	}
	return FieldErrorf(read, "is missing: %s is for other schemes, and %q reads %s", other, s.Name, read)
}

// Authentication makes the scheme of a mapping ready for requests.
func (m *Mapping) Authentication(secrets HookSecrets) (Authentication, error) {
	s := BearerScheme
	if m.AuthMode != "" {
		s = FindScheme(m.AuthMode)
	}
	if s == nil {
		names := SchemeNames()
		if meant := text.Nearest(m.AuthMode, names); meant != "" {
			return Authentication{}, FieldErrorf("authMode", "must be one of %s; did you mean %s?", strings.Join(names, ", "), meant)
		}
		return Authentication{}, oneOf("authMode", m.AuthMode, names)
	}
	if err := m.checkSecretField(s); err != nil {
		return Authentication{}, err
	}
	verifier, err := s.Compile(m, secrets)
	if err != nil {
		return Authentication{}, err
	}
	if s.variant != nil {
		own := s.variant(m, *s)
		s = &own
	}
	a := Authentication{Scheme: s, Verifier: verifier, hidden: make(auth.HeaderNames),
		unnamed: m.HMACHeader != "" && !likeHeader.MatchString(m.HMACHeader), Secrets: secrets.ofToken, consents: m.Body == CloudEvents}
	a.hidden.Add(s.SecretHeaders(m)...)
	if s == BearerScheme {
		return a, nil
	}
	a.Secrets = nil
	parts := handshakeParts{verifier: verifier}
	for _, field := range SecretFields {
		if !slices.Contains(s.Fields, field.Name) || len(*field.In(m)) == 0 {
			continue
		}
		resolved, err := secrets.list(field.Name, *field.In(m))
		if err != nil {
			return Authentication{}, err
		}
		if field.Name == verifyTokenField {
			parts.verify = auth.NewTokens(resolved...)
			continue
		}
		parts.secrets = resolved
		a.Secrets = secrets.uses.FindAll(lastuse.OfHook(m.Name), resolved)
	}
	if s.newHandshake != nil {
		a.greet = s.newHandshake(parts)
	}
	if s.secretInBody {
		a.inBody = newMasks(parts.secrets)
	}
	return a, nil
}

// Authenticate returns a *RefusedCredential for a request that is refused, and an *UndecidedCredential if that cannot be said now. The body
// is nil if the scheme looks at headers alone.
func (a Authentication) Authenticate(req *auth.Request) error {
	verdict := a.Verifier.Verify(req)
	if verdict.OK {
		if verdict.Secret < len(a.Secrets) {
			a.Secrets[verdict.Secret].Note(req.Now)
		}
		return nil
	}
	if verdict.RetryAfter > 0 {
		return &UndecidedCredential{verdict}
	}
	return &RefusedCredential{Authentication: a, Verdict: verdict}
}

// UndecidedCredential says that a credential cannot be checked now.
type UndecidedCredential struct{ Verdict auth.Verdict }

func (e *UndecidedCredential) Error() string {
	return fmt.Sprintf("the credential cannot be checked now: %s: %v", e.Verdict.Reason, e.Verdict.Cause)
}

// likeHeader matches names that are not a secret in a wrong place.
var likeHeader = regexp.MustCompile(`(?i)^x-|signature`)

// RefusedCredential says that a credential is missing or wrong. The reason why it is wrong is not for callers.
type RefusedCredential struct {
	Authentication
	Verdict auth.Verdict
	Told    string // what the caller is told instead; "" if nothing
}

// Message is for the caller. It says what is missing.
func (e *RefusedCredential) Message() string {
	missing := string(e.Verdict.Reason)
	switch {
	case e.Told != "":
		return e.Told
	case e.AwaitsSecret():
		return "This hook has no secret yet, and accepts nothing but a secret that " + e.Title + " tells it."
	case !e.Verdict.Missing:
		return e.Wrong
	case e.unnamed:
		missing = "the signature is missing"
	}
	return strings.ToUpper(missing[:1]) + missing[1:] + ". " + e.Missing
}

func (e *RefusedCredential) Error() string {
	return fmt.Sprintf("the credential is refused: %s", e.Verdict.Reason)
}

// unmarshalAuth parses:
//
//	auth <scheme> [<arg>...] {
//		<subdirectives of the scheme>
//	}
//
// Its errors quote no argument: each may be a secret.
func (m *Mapping) unmarshalAuth(d *caddyfile.Dispenser, places SettingPlaces) error {
	var s *Scheme
	if d.NextArg() {
		s = FindScheme(d.Val())
	}
	if s == nil && d.Val() == "auth" {
		return d.Err("auth takes " + listSchemes())
	}
	if s == nil {
		if meant := text.Nearest(d.Val(), SchemeNames()); meant != "" {
			return d.Errf("auth has no such scheme: did you mean %s? It takes %s", meant, listSchemes())
		}
		return d.Errf("auth has no such scheme: %s. It takes %s", whenToUseTokens, listSchemes())
	}
	args := d.RemainingArgs()
	if len(args) < s.minArgs || len(args) > s.maxArgs {
		unset := ""
		if len(args) < s.minArgs {
			unset = caddyconf.Unset
		}
		return d.Errf("auth %s takes %s%s", s.Name, cmp.Or(s.arguments, "no arguments"), unset)
	}
	for i, arg := range args {
		if arg == "" && (i < s.minArgs || s.takesSecrets()) {
			return d.Errf("an argument of auth %s is empty%s", s.Name, caddyconf.Unset)
		}
		args[i] = shorthand.Undo(arg)
	}
	m.AuthMode = s.Name
	if s.unmarshal == nil {
		return caddyconf.ReadBlock(d, "auth "+s.Name)
	}
	return s.unmarshal(d, args, m, places)
}

// takesSecrets reports whether the arguments are a list of secrets.
func (s *Scheme) takesSecrets() bool { return s.arguments == "<secret>..." }

// listSchemes lists the schemes with their arguments, for errors.
func listSchemes() string {
	var usages []string
	for _, s := range Schemes {
		usages = append(usages, fmt.Sprintf("'%s'", strings.TrimSpace(s.Name+" "+s.arguments)))
	}
	last := len(usages) - 1
	if last == 0 {
		return usages[0]
	}
	return strings.Join(usages[:last], ", ") + " or " + usages[last]
}

// authFields are the fields of a mapping that auth sets in a Caddyfile, by their names in JSON.
func authFields() []string {
	fields := []string{"authMode"}
	for _, s := range Schemes {
		fields = append(fields, s.Fields...)
	}
	return fields
}

// Signs reports whether a payload can be signed by an operator, with the secret of a hook.
func (s *Scheme) Signs() bool {
	m := Mapping{AuthMode: s.Name, HMACHeader: "X-Signature", HMACSecret: Secrets{exampleSecret}, AuthSecret: Secrets{exampleSecret}}
	verifier, err := s.Compile(&m, HookSecrets{Resolve: func(secret string) (string, error) { return secret, nil }})
	_, ok := verifier.(auth.Signer)
	return err == nil && ok
}

// exampleSecret is one that every scheme takes.
const exampleSecret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=" //nolint:gosec // nobody has it

// KeyID is the digest of some texts.
func KeyID(parts ...string) [32]byte {
	scope := sha256.New()
	WriteParts(scope, parts...)
	return [32]byte(scope.Sum(nil))
}

// WriteParts writes texts so that different lists of texts are different.
func WriteParts(scope hash.Hash, parts ...string) {
	for _, part := range parts {
		var length [8]byte
		binary.BigEndian.PutUint64(length[:], uint64(len(part)))
		scope.Write(length[:])
		scope.Write([]byte(part))
	}
}

// ReplayKey returns the key by which a request is known again that was recorded and is sent once more, nil if the scheme has
// no timestamp. The request is authenticated already.
func (a Authentication) ReplayKey(hook string, req *auth.Request) *engine.Key {
	timed, ok := a.Verifier.(auth.Timed)
	if !ok {
		return nil
	}
	content, ok := timed.Content(req)
	if !ok {
		return nil
	}
	return &engine.Key{ID: KeyID("signed", hook, string(content[:])), AnyBody: true}
}
