// Package programs has what the runners share that start programs on this machine: the options of how one is started, the folders
// that it works in, and what is said about how it ended.
//
// Of the runners it imports answers alone.
package programs

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"go.uber.org/zap"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/caddyconf"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/shorthand"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/answers"
)

// Program is how the programs of a runner are started. They inherit nothing of Caddy's environment but PATH and LANG.
type Program struct {
	// Variables of the environment. The placeholders {env.X} and {file.X} are replaced. Other braces stay, as those of JSON.
	Env map[string]string `json:"env,omitempty"`

	// The names of variables that are passed on from the environment of Caddy.
	PassEnv []string `json:"pass_env,omitempty"`

	// The working directory. Default: an empty folder of the runner's own in Caddy's data directory.
	Dir string `json:"dir,omitempty"`

	// The user to run as, which only root may choose. Default: that of Caddy.
	User string `json:"user,omitempty"`

	// The home directory. Default: a folder of the runner's own in Caddy's data directory.
	Home string `json:"home,omitempty"`

	answers.Redactor

	env   map[string]string
	dir   string
	home  string
	unset []string // of PassEnv
	place string
}

// Place tells the runner of a folder that it may use. It may not exist yet.
func (p *Program) Place(dir string) { p.place = dir }

// PlaceDir is the folder that Place was given.
func (p *Program) PlaceDir() string { return p.place }

// Variables are the operator's variables of the environment, by name.
func (p *Program) Variables() map[string]string { return p.env }

// Directives are the lines of a block that say how a program is started.
func (p *Program) Directives() []caddyconf.Directive {
	return []caddyconf.Directive{
		{Word: "env", Repeatable: true, Read: p.readEnv},
		{Word: "pass_env", Repeatable: true, Read: p.readPassEnv},
		caddyconf.Set("dir", &p.Dir, caddyconf.Checked(caddyconf.Path, checkFolder)),
		caddyconf.Set("user", &p.User, caddyconf.Word),
		caddyconf.Set("home", &p.Home, caddyconf.Checked(caddyconf.Path, checkFolder)),
	}
}

func (p *Program) readEnv(d *caddyfile.Dispenser) error {
	words := d.RemainingArgs()
	const nameAndValue = 2
	if len(words) != nameAndValue { // no word is quoted: it may be a secret
		return d.Err("env takes a name and a value, each a word of its own, as in: env ANTHROPIC_API_KEY {env.ANTHROPIC_API_KEY}" +
			caddyconf.Unset)
	}
	if err := checkVariable("env", words[0]); err != nil {
		return d.WrapErr(err)
	}
	if _, ok := p.Env[words[0]]; ok {
		return d.Errf("env %s is set already", words[0])
	}
	if p.Env == nil {
		p.Env = make(map[string]string)
	}
	p.Env[words[0]] = shorthand.Undo(words[1])
	return nil
}

func (p *Program) readPassEnv(d *caddyfile.Dispenser) error {
	names, err := caddyconf.List(d)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := checkVariable("pass_env", name); err != nil {
			return d.WrapErr(err)
		}
		if slices.Contains(p.PassEnv, name) {
			return d.Errf("pass_env %s is set already", name)
		}
		p.PassEnv = append(p.PassEnv, name)
	}
	return nil
}

// checkFolder finds mistakes in a path that do not depend on the machine.
func checkFolder(path string) error {
	if slices.Contains(strings.Split(path, "/"), "~") {
		return errors.New("~ is not expanded here: write the whole path")
	}
	return nil
}

// Check finds mistakes that do not depend on the machine.
func (p *Program) Check() error {
	for _, name := range p.PassEnv {
		if err := checkVariable("pass_env", name); err != nil {
			return err
		}
		if _, ok := p.Env[name]; ok {
			return fmt.Errorf("env and pass_env both set %s", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.Env)) {
		if err := checkVariable("env", name); err != nil {
			return err
		}
	}
	return errors.Join(checkFolder(p.Dir), checkFolder(p.Home))
}

// checkVariable quotes no name that may be a value.
func checkVariable(word, name string) error {
	switch {
	case name == "" || strings.ContainsAny(name, "= \t\r\n\x00{}"):
		return fmt.Errorf("%s needs the name of a variable, such as ANTHROPIC_API_KEY, and not NAME=value", word)
	case strings.HasPrefix(name, "HOOKS_"):
		return fmt.Errorf("%s %s: names that begin with HOOKS_ are set for each turn", word, name)
	}
	return nil
}

// Resolve replaces placeholders. Its errors name no value, which may be a secret.
func (p *Program) Resolve() (err error) {
	p.env, p.unset = make(map[string]string), nil
	for _, name := range p.PassEnv {
		if value, ok := os.LookupEnv(name); ok {
			p.env[name] = value
		} else {
			p.unset = append(p.unset, name)
		}
	}
	for name, value := range p.Env {
		if value, err = resolveVariable(value); err != nil {
			return fmt.Errorf("the value of env %s %w", name, err)
		}
		if strings.ContainsRune(value, 0) {
			return fmt.Errorf("the value of env %s has a NUL character", name)
		}
		p.env[name] = value
	}
	if p.dir, err = wholePath(p.Dir); err != nil {
		return fmt.Errorf("dir: %w", err)
	}
	if p.home, err = wholePath(p.Home); err != nil {
		return fmt.Errorf("home: %w", err)
	}
	return nil
}

// variablePlaceholder matches the placeholders that a value may hold. What else is in braces may be JSON.
var variablePlaceholder = regexp.MustCompile(`\{(?:env|file)\.[^{}]+\}`)

// resolveVariable replaces the placeholders in a value. What they stand for is taken as it is.
func resolveVariable(value string) (resolved string, err error) {
	resolved = variablePlaceholder.ReplaceAllStringFunc(value, func(placeholder string) string {
		secret, problem := caddyconf.ResolveSecret(placeholder)
		if problem != nil && err == nil {
			err = problem
		}
		return secret
	})
	return resolved, err
}

// wholePath replaces placeholders in a path, which may be relative to Caddy's working directory. No path stays none.
func wholePath(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	known := caddy.NewReplacer().ReplaceKnown(path, "")
	if known == "" {
		return "", fmt.Errorf("%s is empty", path)
	}
	return filepath.Abs(known)
}

// shortestSecret is the length that a value has at least to be taken for a secret. A shorter one may be part of any word.
const shortestSecret = 8

// ResolveArgs replaces the placeholders in arguments. From then on, the Redactor hides what they stood for, and the variables.
func (p *Program) ResolveArgs(args []string) (resolved []string) {
	secrets := p.secrets()
	for _, arg := range args {
		known := caddy.NewReplacer().ReplaceKnown(arg, "")
		if known != arg && len(known) >= shortestSecret {
			secrets = append(secrets, known)
		}
		resolved = append(resolved, known)
	}
	p.Redactor = answers.NewRedactor("", "", secrets...)
	return resolved
}

// WholeName is the name of a program, or its path, which may be relative to Caddy's working directory.
func WholeName(program string) (string, error) {
	switch {
	case program == "":
		return "", errors.New("the name of the program is empty")
	case strings.Contains(program, "/"):
		return filepath.Abs(program)
	}
	return program, nil
}

// secrets are the values that a program may repeat and nobody else should see. Folders are none: operators read of them in errors.
func (p *Program) secrets() (secrets []string) {
	for _, name := range slices.Sorted(maps.Keys(p.env)) {
		folder := slices.ContainsFunc([]string{"PATH", "HOME", "DIR"}, func(end string) bool { return strings.HasSuffix(name, end) })
		if value := p.env[name]; len(value) >= shortestSecret && !(folder && filepath.IsAbs(value)) {
			secrets = append(secrets, value)
		}
	}
	return secrets
}

// LogWarnings logs the warnings about a program. Place must have been called.
func (p *Program) LogWarnings(log *zap.Logger, program string, presets []string) {
	for _, warning := range p.Warnings(program, presets) {
		log.Warn("runner program cannot start as configured",
			zap.String("runner", filepath.Base(p.place)), zap.String("problem", warning))
	}
}

// Warnings are the mistakes that depend on the machine, for the log: the same configuration may be right on another one.
func (p *Program) Warnings(program string, presets []string) (warnings []string) {
	warn := func(err error) {
		if err != nil {
			warnings = append(warnings, err.Error())
		}
	}
	for _, name := range p.unset {
		warnings = append(warnings, "pass_env "+name+": there is no such variable in the environment of Caddy")
	}
	_, err := p.Owner()
	warn(err)
	if p.dir != "" {
		warn(checkIsFolder("dir", p.dir))
	}
	if p.home != "" {
		warn(checkIsFolder("home", p.home))
	}
	err = p.CheckProgram(program)
	if err != nil && !strings.Contains(program, "/") {
		err = fmt.Errorf("%w; the presets are %s", err, strings.Join(presets, ", "))
	}
	warn(err)
	return warnings
}

func checkIsFolder(word, path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s %s is not there", word, path)
	case err != nil:
		return fmt.Errorf("%s %s: %w", word, path, err)
	case !info.IsDir():
		return fmt.Errorf("%s %s is not a folder", word, path)
	}
	return nil
}

// CheckProgram looks a program up in the PATH that it will get.
func (p *Program) CheckProgram(program string) error {
	if filepath.IsAbs(program) {
		return checkIsProgram(program)
	}
	path := p.searchPath()
	for _, dir := range filepath.SplitList(path) {
		if filepath.IsAbs(dir) && checkIsProgram(filepath.Join(dir, program)) == nil {
			return nil
		}
	}
	return fmt.Errorf("there is no program %s in the PATH %s", program, path)
}

func checkIsProgram(path string) error {
	const executable = 0o111
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("there is no program %s", path)
	case err != nil:
		return fmt.Errorf("the program %s: %w", path, err)
	case info.IsDir():
		return fmt.Errorf("%s is a folder, and no program", path)
	case info.Mode()&executable == 0:
		return fmt.Errorf("%s is not executable", path)
	}
	return nil
}

// searchPath is the PATH that a program gets.
func (p *Program) searchPath() string {
	const usual = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	for _, path := range []string{p.env["PATH"], os.Getenv("PATH")} {
		if path != "" {
			return path
		}
	}
	return usual
}

// owner is the user that a program runs as, nil if that is Caddy's.
type owner struct{ uid, gid int }

func (p *Program) Owner() (*owner, error) {
	if p.User == "" {
		return nil, nil
	}
	found, err := user.Lookup(p.User)
	if err != nil {
		return nil, fmt.Errorf("there is no user %s on this machine", p.User)
	}
	uid, errUID := strconv.Atoi(found.Uid)
	gid, errGID := strconv.Atoi(found.Gid)
	switch {
	case errUID != nil || errGID != nil:
		return nil, fmt.Errorf("user %s has no number", p.User)
	case uid == os.Geteuid():
		return nil, nil
	case os.Geteuid() != 0:
		return nil, fmt.Errorf("user %s: only root can run programs as another user, and Caddy does not run as root", p.User)
	}
	return &owner{uid, gid}, nil
}

// Give makes a file or folder the owner's. It follows no link.
func (o *owner) Give(path string) error { return os.Lchown(path, o.uid, o.gid) }

// canEnter reports whether the owner may go through a folder, by the folder's permissions.
func (o *owner) canEnter(info fs.FileInfo) bool {
	mode := info.Mode()
	uid, gid, known := numbersOf(info)
	switch {
	case !known:
		return true
	case uid == o.uid:
		return mode&0o100 != 0
	case gid == o.gid:
		return mode&0o010 != 0
	default:
		return mode&0o001 != 0
	}
}

// Folders are where a program of the runner works and keeps its things. They are made if they are the runner's own, and belong to
// the user that the program runs as.
func (p *Program) Folders() (dir, home, temp string, err error) {
	as, err := p.Owner()
	if err != nil {
		return "", "", "", err
	}
	if p.dir != "" {
		if err := checkIsFolder("dir", p.dir); err != nil {
			return "", "", "", err
		}
	}
	if p.home != "" {
		if err := checkIsFolder("home", p.home); err != nil {
			return "", "", "", err
		}
	}
	if err := p.makePlace(as); err != nil {
		if p.dir != "" && p.home != "" && as != nil { // the user has no use for the place
			return p.dir, p.home, os.TempDir(), nil
		}
		return "", "", "", err
	}
	own := func(given, name string) string {
		if given != "" {
			return given
		}
		path := filepath.Join(p.place, name)
		if err == nil {
			err = makeFolder(path, as)
		}
		return path
	}
	dir, home, temp = own(p.dir, "work"), own(p.home, "home"), own("", "tmp")
	return dir, home, temp, err
}

// makePlace makes the folder of the runner. Another user may go through it, and no more.
func (p *Program) makePlace(as *owner) error {
	const private, passage = 0o700, 0o711
	if as == nil {
		if err := os.MkdirAll(p.place, private); err != nil {
			return err
		}
		removeLeftovers(p.place)
		removeLeftovers(filepath.Join(p.place, "tmp"))
		return nil
	}
	if err := os.MkdirAll(p.place, passage); err != nil {
		return err
	}
	for folder := p.place; ; folder = filepath.Dir(folder) {
		info, err := os.Stat(folder)
		if err != nil {
			return err
		}
		if !as.canEnter(info) {
			return fmt.Errorf("user %s may not enter %s, where the folders of the runner are: set %s", p.User, folder, p.ownFolders())
		}
		if folder == filepath.Dir(folder) {
			removeLeftovers(p.place)
			return nil
		}
	}
}

// ownFolders names the options by which the runner would need no folder there.
func (p *Program) ownFolders() string {
	switch {
	case p.dir == "" && p.home == "":
		return "dir and home"
	case p.home == "":
		return "home, too"
	default:
		return "dir, too"
	}
}

// makeFolder makes a folder if it is not there. It never follows a link.
func makeFolder(path string, as *owner) error {
	const private = 0o700
	err := os.Mkdir(path, private)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := os.Lstat(path)
	switch {
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%s is not a folder", path)
	case as == nil:
		return nil
	}
	return as.Give(path) // it may have been made for another user
}

// Environment is what a program gets: what the operator lists, then more, which goes before it.
func (p *Program) Environment(home, temp string, more map[string]string) []string {
	all := map[string]string{"LANG": "C.UTF-8", "HOME": home, "TMPDIR": temp}
	if lang := os.Getenv("LANG"); lang != "" {
		all["LANG"] = lang
	}
	maps.Copy(all, p.env)
	all["PATH"] = p.searchPath()
	maps.Copy(all, more)
	var env []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		env = append(env, name+"="+all[name])
	}
	return env
}
