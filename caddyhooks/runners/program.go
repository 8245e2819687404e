package runners

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/caddyconf"
)

// Program is how the programs of a runner are started. They inherit nothing of Caddy's environment but PATH and LANG.
type Program struct {
	// Variables of the environment. Placeholders such as {env.X} and {file.X} are replaced.
	Env map[string]string `json:"env,omitempty"`

	// The names of variables that are passed on from the environment of Caddy.
	PassEnv []string `json:"pass_env,omitempty"`

	// The working directory. Default: an empty folder of the runner's own in Caddy's data directory.
	Dir string `json:"dir,omitempty"`

	// The user to run as, which only root may choose. Default: that of Caddy.
	User string `json:"user,omitempty"`

	// The home directory. Default: a folder of the runner's own in Caddy's data directory.
	Home string `json:"home,omitempty"`

	env   map[string]string
	place string
}

// Place tells the runner of a folder that it may use. It may not exist yet.
func (p *Program) Place(dir string) { p.place = dir }

// directives are the lines of a block that say how a program is started.
func (p *Program) directives() []caddyconf.Directive {
	return []caddyconf.Directive{
		{Word: "env", Repeatable: true, Read: p.readEnv},
		caddyconf.Set("pass_env", &p.PassEnv, caddyconf.List),
		caddyconf.Set("dir", &p.Dir, caddyconf.Text),
		caddyconf.Set("user", &p.User, caddyconf.Word),
		caddyconf.Set("home", &p.Home, caddyconf.Text),
	}
}

func (p *Program) readEnv(d *caddyfile.Dispenser) error {
	words := d.RemainingArgs()
	const nameAndValue = 2
	if len(words) != nameAndValue {
		return d.Err("env takes a name and a value, as in: env ANTHROPIC_API_KEY {env.ANTHROPIC_API_KEY}")
	}
	if _, ok := p.Env[words[0]]; ok {
		return d.Errf("env %s is set already", words[0])
	}
	if p.Env == nil {
		p.Env = make(map[string]string)
	}
	p.Env[words[0]] = words[1]
	return nil
}

// provision replaces placeholders. Its errors name no value, which may be a secret.
func (p *Program) provision() error {
	p.env = make(map[string]string)
	for _, name := range p.PassEnv {
		if err := checkVariable(name); err != nil {
			return err
		}
		if value, ok := os.LookupEnv(name); ok {
			p.env[name] = value
		}
	}
	for name, value := range p.Env {
		if err := checkVariable(name); err != nil {
			return err
		}
		resolved := caddy.NewReplacer().ReplaceKnown(value, "")
		if strings.ContainsRune(resolved, 0) {
			return fmt.Errorf("the value of env %s has a NUL character", name)
		}
		p.env[name] = resolved
	}
	return nil
}

func checkVariable(name string) error {
	switch {
	case name == "" || strings.ContainsAny(name, "= \x00"):
		return errors.New("env needs the name of a variable, such as ANTHROPIC_API_KEY")
	case strings.HasPrefix(name, "HOOKS_"):
		return fmt.Errorf("env %s: names that begin with HOOKS_ are set for each turn", name)
	}
	return nil
}

// secrets are the values that a program may repeat and nobody else should see.
func (p *Program) secrets() (secrets []string) {
	const shortest = 8
	for _, name := range slices.Sorted(maps.Keys(p.env)) {
		if value := p.env[name]; len(value) >= shortest {
			secrets = append(secrets, value)
		}
	}
	return secrets
}

// folders are where a program of the runner works and keeps its things. They are made if they are the runner's own.
func (p *Program) folders() (dir, home, temp string, err error) {
	own := func(given, name string) (string, error) {
		if given != "" {
			return caddy.NewReplacer().ReplaceKnown(given, ""), nil
		}
		path := filepath.Join(p.place, name)
		return path, os.MkdirAll(path, 0o700)
	}
	var errs [3]error
	dir, errs[0] = own(p.Dir, "work")
	home, errs[1] = own(p.Home, "home")
	temp, errs[2] = own("", "tmp")
	return dir, home, temp, errors.Join(errs[:]...)
}

// environment is what a program gets: what the operator lists, then more, which goes before it.
func (p *Program) environment(home, temp string, more map[string]string) []string {
	const usualPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	all := map[string]string{"PATH": usualPath, "LANG": "C.UTF-8"}
	for _, name := range []string{"PATH", "LANG"} {
		if value := os.Getenv(name); value != "" {
			all[name] = value
		}
	}
	maps.Copy(all, map[string]string{"HOME": home, "TMPDIR": temp})
	maps.Copy(all, p.env)
	maps.Copy(all, more)
	var env []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		env = append(env, name+"="+all[name])
	}
	return env
}
