// Package caddyconf reads configuration: blocks of a Caddyfile, the values in them, sizes, and secrets.
//
// A module describes its block as a list of directives, and each directive names the Reader of its value:
//
//	return caddyconf.ReadBlock(d, "runner echo",
//		caddyconf.Set("delay", &e.Delay, caddyconf.Duration(0)),
//		caddyconf.Set("reply", &e.Reply, caddyconf.Text))
//
// Unknown and repeated directives are refused, and so is a wrong number of arguments. No error quotes a secret.
package caddyconf

import (
	"cmp"
	"reflect"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// Directive is a line of a block, which begins with its word.
type Directive struct {
	Word string

	// Read reads the rest of the line, and the block after it if there is one. The current token is the word.
	Read func(d *caddyfile.Dispenser) error

	// Whether the directive may stand in a block more than once.
	Repeatable bool

	// The word of another directive that this one can stand for, such as template for template_file. A block takes one
	// of the two.
	InsteadOf string

	// Where the directive belongs instead, if it does not belong here: "the block of a hook".
	Elsewhere string

	several bool // it takes several values on one line
}

// ReadBlock reads the block that follows, if there is one. owner names the directive or module of the block in errors, which
// list the directives in the order given here.
func ReadBlock(d *caddyfile.Dispenser, owner string, directives ...Directive) error {
	seen := make(map[string]bool)
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		directive, ok := find(directives, d.Val())
		if !ok {
			return unrecognized(d, owner, directives)
		}
		if directive.Elsewhere != "" {
			return d.Errf("%s belongs in %s; or is a brace missing above this line?", directive.Word, directive.Elsewhere)
		}
		name := directive.Word
		if directive.InsteadOf != "" {
			name = directive.InsteadOf
		}
		if seen[name] && !directive.Repeatable {
			if directive.several {
				return d.Errf("%s is set already; write several values on one line", name)
			}
			return d.Errf("%s is set already", name)
		}
		seen[name] = true
		if err := directive.Read(d); err != nil {
			return err
		}
	}
	return nil
}

func find(directives []Directive, word string) (Directive, bool) {
	for _, directive := range directives {
		if directive.Word == word {
			return directive, true
		}
	}
	return Directive{}, false
}

// unrecognized is the error about an unknown word: it names the word that was probably meant, or all of them if none is near.
func unrecognized(d *caddyfile.Dispenser, owner string, directives []Directive) error {
	var words []string
	for _, directive := range directives {
		if directive.Elsewhere == "" {
			words = append(words, directive.Word)
		}
	}
	if meant := text.Nearest(d.Val(), words); meant != "" {
		return d.Errf("unrecognized subdirective '%s'; did you mean %s?", d.Val(), meant)
	}
	return d.Errf("unrecognized subdirective '%s'; %s takes %s", d.Val(), owner, cmp.Or(text.List(words), "none"))
}

// Set returns a directive that stores its value.
func Set[T any](word string, to *T, read Reader[T]) Directive {
	return Directive{Word: word, several: isList[T](), Read: func(d *caddyfile.Dispenser) (err error) {
		*to, err = read(d)
		return err
	}}
}

// isList reports whether a type is a list, and not JSON.
func isList[T any]() bool {
	kind := reflect.TypeFor[T]()
	return kind.Kind() == reflect.Slice && kind.Elem().Kind() != reflect.Uint8
}
