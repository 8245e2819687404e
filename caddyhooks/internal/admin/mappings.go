package admin

import (
	"errors"
	"net/http"
	"slices"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/service"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

func init() {
	InstanceEndpoints.Handle("GET /mappings", listMappings)
	InstanceEndpoints.Handle("GET /mappings/{name}", serveMapping)
	InstanceEndpoints.Handle("PUT /mappings/{name}", putMapping)
	InstanceEndpoints.Handle("DELETE /mappings/{name}", deleteMapping)
}

func listMappings(in *service.Instance, w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, http.StatusOK, in.Mappings(in.Active.Load()))
}

func serveMapping(in *service.Instance, w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("name")
	active := in.Active.Load()
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
	return writeJSON(w, http.StatusOK, settings.ShowMapping(*m, pinned))
}

// checkMapping checks the preconditions of a change of a mapping, which may be pinned, live or not there.
func checkMapping(in *service.Instance, conditions preconditions, live *settings.Settings, name string) error {
	return checkPreconditions(conditions, func() (string, error) {
		if m := settings.FindMapping(in.Pinned.Mappings, name); m != nil {
			return etagOfMapping(m, true, in.Active.Load())
		}
		if m := settings.FindMapping(live.Mappings, name); m != nil {
			return etagOfMapping(m, false, in.Active.Load())
		}
		return "", nil
	})
}

func noMapping(name string) error {
	return api.Errorf(http.StatusNotFound, "there is no hook %q", text.Abridge(name))
}

func putMapping(in *service.Instance, w http.ResponseWriter, r *http.Request) error {
	body, err := readBody(r)
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
	active, err := in.Service.Change(originOf(callerFrom(r)), func(in *service.Instance, live *settings.Settings) error {
		if err := checkMapping(in, conditions, live, name); err != nil {
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
		return mappingError(in, r, err)
	}
	tag, err := etagOfMapping(&m, pinned, active)
	if err != nil {
		return err
	}
	w.Header().Set("ETag", tag)
	saved := settings.ShowMapping(m, pinned)
	saved.Warnings = active.WarningsOfHook(name)
	return writeJSON(w, http.StatusOK, saved)
}

// mappingError is the answer to a change of the mapping in the path that was refused or that failed.
func mappingError(in *service.Instance, r *http.Request, err error) error {
	if errors.Is(err, errPrecondition) {
		name := r.PathValue("name")
		return preconditionError(r.Context(), in, settings.PartName(name), "the hook "+text.Abridge(name))
	}
	return changeError(err)
}

func deleteMapping(in *service.Instance, w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("name")
	conditions, err := parsePreconditions(r.Header)
	if err != nil {
		return err
	}
	_, err = in.Service.Change(originOf(callerFrom(r)), func(in *service.Instance, live *settings.Settings) error {
		if settings.IndexMapping(in.Pinned.Mappings, name) >= 0 {
			return &settings.PinnedHookError{Name: name}
		}
		i := settings.IndexMapping(live.Mappings, name)
		if i < 0 {
			return noMapping(name)
		}
		if err := checkMapping(in, conditions, live, name); err != nil {
			return err
		}
		live.Mappings = slices.Delete(live.Mappings, i, i+1)
		return nil
	})
	if err != nil {
		return mappingError(in, r, err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
