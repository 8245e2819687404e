package caddyhooks

import (
	"net/http"
	"slices"
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
	for _, m := range in.mappings(in.active.Load()) {
		if m.Name == name {
			return writeAdminJSON(w, http.StatusOK, m)
		}
	}
	return noMapping(name)
}

func noMapping(name string) error {
	return apiError(http.StatusNotFound, "there is no hook %q", name)
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
	pinned := false
	err = in.service.change(originOf(callerFrom(r)), func(in *instance, live *Settings) error {
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
		return changeError(err)
	}
	saved := newMappingJSON(m, pinned)
	saved.Warnings = in.active.Load().warningsOfHook(name)
	return writeAdminJSON(w, http.StatusOK, saved)
}

func (in *instance) deleteMapping(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("name")
	err := in.service.change(originOf(callerFrom(r)), func(in *instance, live *Settings) error {
		if indexMapping(in.pinned.Mappings, name) >= 0 {
			return pinnedHook(name)
		}
		i := indexMapping(live.Mappings, name)
		if i < 0 {
			return noMapping(name)
		}
		live.Mappings = slices.Delete(live.Mappings, i, i+1)
		return nil
	})
	if err != nil {
		return changeError(err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
