package caddyhooks

import (
	"errors"
	"net/http"
	"slices"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

func init() {
	instanceEndpoints.handle("GET /mappings", (*instance).listMappings)
	instanceEndpoints.handle("GET /mappings/{name}", (*instance).serveMapping)
	instanceEndpoints.handle("PUT /mappings/{name}", (*instance).putMapping)
	instanceEndpoints.handle("DELETE /mappings/{name}", (*instance).deleteMapping)
}

func (in *instance) listMappings(w http.ResponseWriter, _ *http.Request) error {
	return writeAdminJSON(w, http.StatusOK, in.mappings(in.active.Load()))
}

func (in *instance) serveMapping(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("name")
	active := in.active.Load()
	m := settings.FindMapping(active.Settings.Mappings, name)
	if m == nil {
		return noMapping(name)
	}
	pinned := active.Hooks[name].Pinned
	tag, err := etagOfMapping(m, pinned, active)
	if err != nil {
		return err
	}
	w.Header().Set("ETag", tag)
	return writeAdminJSON(w, http.StatusOK, settings.ShowMapping(*m, pinned))
}

// checkMapping checks the preconditions of a change of a mapping, which may be pinned, live or not there.
func (in *instance) checkMapping(conditions preconditions, live *settings.Settings, name string) error {
	return checkPreconditions(conditions, func() (string, error) {
		if m := settings.FindMapping(in.Pinned.Mappings, name); m != nil {
			return etagOfMapping(m, true, in.active.Load())
		}
		if m := settings.FindMapping(live.Mappings, name); m != nil {
			return etagOfMapping(m, false, in.active.Load())
		}
		return "", nil
	})
}

func noMapping(name string) error {
	return api.Errorf(http.StatusNotFound, "there is no hook %q", text.Abridge(name))
}

func (in *instance) putMapping(w http.ResponseWriter, r *http.Request) error {
	body, err := readAdminBody(r)
	if err != nil {
		return err
	}
	name := r.PathValue("name")
	m, err := settings.ParseMapping(body)
	if err == nil && m.Name != "" && m.Name != name {
		err = settings.FieldErrorf("name", "must be %s, as in the URL, or be left out", name)
	}
	if err != nil {
		return changeError(err)
	}
	m.Name = name
	conditions, err := parsePreconditions(r.Header)
	if err != nil {
		return err
	}
	pinned := false
	active, err := in.service.change(originOf(callerFrom(r)), func(in *instance, live *settings.Settings) error {
		if err := in.checkMapping(conditions, live, name); err != nil {
			return err
		}
		pinnedMapping := settings.FindMapping(in.Pinned.Mappings, name)
		pinned = pinnedMapping != nil
		if err := settings.AdmitMapping(&m, pinnedMapping, settings.FindMapping(live.Mappings, name)); err != nil || pinned {
			return err
		}
		if i := settings.IndexMapping(live.Mappings, name); i >= 0 {
			live.Mappings[i] = m
		} else {
			live.Mappings = append(live.Mappings, m)
		}
		return nil
	})
	if err != nil {
		return in.mappingError(r, err)
	}
	tag, err := etagOfMapping(&m, pinned, active)
	if err != nil {
		return err
	}
	w.Header().Set("ETag", tag)
	saved := settings.ShowMapping(m, pinned)
	saved.Warnings = active.WarningsOfHook(name)
	return writeAdminJSON(w, http.StatusOK, saved)
}

// mappingError is the answer to a change of the mapping in the path that was refused or that failed.
func (in *instance) mappingError(r *http.Request, err error) error {
	if errors.Is(err, errPrecondition) {
		name := r.PathValue("name")
		return in.preconditionError(r.Context(), settings.PartName(name), "the hook "+text.Abridge(name))
	}
	return changeError(err)
}

func (in *instance) deleteMapping(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("name")
	conditions, err := parsePreconditions(r.Header)
	if err != nil {
		return err
	}
	_, err = in.service.change(originOf(callerFrom(r)), func(in *instance, live *settings.Settings) error {
		if settings.IndexMapping(in.Pinned.Mappings, name) >= 0 {
			return &settings.PinnedHookError{Name: name}
		}
		i := settings.IndexMapping(live.Mappings, name)
		if i < 0 {
			return noMapping(name)
		}
		if err := in.checkMapping(conditions, live, name); err != nil {
			return err
		}
		live.Mappings = slices.Delete(live.Mappings, i, i+1)
		return nil
	})
	if err != nil {
		return in.mappingError(r, err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
