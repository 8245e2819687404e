package settings

import (
	"errors"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/caddyconf"
)

// SettingPlaces are the places in a Caddyfile that set something, by its name in JSON. Errors that are found when the whole
// block is known are reported there.
type SettingPlaces map[string]caddyfile.Dispenser

// Note returns the directive, which then notes its place as that of the named settings.
func (p SettingPlaces) Note(directive caddyconf.Directive, settings ...string) caddyconf.Directive {
	read := directive.Read
	directive.Read = func(d *caddyfile.Dispenser) error {
		for _, name := range settings {
			p[name] = *d
		}
		return read(d)
	}
	return directive
}

// ErrAt reports an error at the place of the setting that it is about.
func (p SettingPlaces) ErrAt(d *caddyfile.Dispenser, err error) error {
	var field *FieldError
	if errors.As(err, &field) {
		if place, ok := p[field.Field]; ok {
			return place.Errf("%s %s", place.Val(), field.problem.in(CaddyfileWords))
		}
		return d.Err(field.in(CaddyfileWords))
	}
	return d.WrapErr(err)
}
