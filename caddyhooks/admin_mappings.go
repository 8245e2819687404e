package caddyhooks

import (
	"errors"
	"net/http"
	"slices"

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
	m := findMapping(active.settings.Mappings, name)
	if m == nil {
		return noMapping(name)
	}
	pinned := active.hooks[name].pinned
	tag, err := etagOfMapping(m, pinned, active)
	if err != nil {
		return err
	}
	w.Header().Set("ETag", tag)
	return writeAdminJSON(w, http.StatusOK, newMappingJSON(*m, pinned))
}

// checkMapping checks the preconditions of a change of a mapping, which may be pinned, live or not there.
func (in *instance) checkMapping(conditions preconditions, live *Settings, name string) error {
	return checkPreconditions(conditions, func() (string, error) {
		if m := findMapping(in.pinned.Mappings, name); m != nil {
			return etagOfMapping(m, true, in.active.Load())
		}
		if m := findMapping(live.Mappings, name); m != nil {
			return etagOfMapping(m, false, in.active.Load())
		}
		return "", nil
	})
}

func noMapping(name string) error {
	return apiError(http.StatusNotFound, "there is no hook %q", text.Abridge(name))
}

func (in *instance) putMapping(w http.ResponseWriter, r *http.Request) error {
	body, err := readAdminBody(r)
	if err != nil {
		return err
	}
	name := r.PathValue("name")
	m, err := parseMapping(body)
	if err == nil && m.Name != "" && m.Name != name {
		err = fieldErrorf("name", "must be %s, as in the URL, or be left out", name)
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
	active, err := in.service.change(originOf(callerFrom(r)), func(in *instance, live *Settings) error {
		if err := in.checkMapping(conditions, live, name); err != nil {
			return err
		}
		pinnedMapping := findMapping(in.pinned.Mappings, name)
		pinned = pinnedMapping != nil
		if err := admitMapping(&m, pinnedMapping, findMapping(live.Mappings, name)); err != nil || pinned {
			return err
		}
		if i := indexMapping(live.Mappings, name); i >= 0 {
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
	saved := newMappingJSON(m, pinned)
	saved.Warnings = active.warningsOfHook(name)
	return writeAdminJSON(w, http.StatusOK, saved)
}

// mappingError is the answer to a change of the mapping in the path that was refused or that failed.
func (in *instance) mappingError(r *http.Request, err error) error {
	if errors.Is(err, errPrecondition) {
		name := r.PathValue("name")
		return in.preconditionError(r.Context(), partName(name), "the hook "+text.Abridge(name))
	}
	return changeError(err)
}

func (in *instance) deleteMapping(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("name")
	conditions, err := parsePreconditions(r.Header)
	if err != nil {
		return err
	}
	_, err = in.service.change(originOf(callerFrom(r)), func(in *instance, live *Settings) error {
		if indexMapping(in.pinned.Mappings, name) >= 0 {
			return &pinnedHookError{name}
		}
		i := indexMapping(live.Mappings, name)
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
