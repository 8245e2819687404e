package contract

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// references resolves the references of a schema. The library is slow with many of them, takes any value for a schema,
// and hangs on some forms of $id. So it gets to see only resources with our names, and references in the form that it
// resolves at once.
type references struct {
	resources      map[string]*resource // by URL
	anchors        map[string]string    // place by URL with fragment
	dynamicAnchors int
	found          []reference
}

// A resource is the schema, or a subschema that has an $id.
type resource struct {
	url  string // in the schema
	name string // URL for the library
	at   string
}

// A reference is a $ref or $dynamicRef.
type reference struct {
	keyword   string
	url       string
	at        string // its subschema
	enclosing *resource
	reduced   map[string]any // the copy of the subschema
}

const (
	baseURL           = "schema:///"
	maxResources      = 100
	maxIDLength       = 512
	maxDynamicAnchors = 100
	maxDynamicSteps   = 200_000 // dynamic references × subschemas in which the library looks for their anchors
)

// register notes the ids, anchors and references of a valid subschema, and returns the resource of the subschema.
func (r *references) register(m, reduced map[string]any, at string, enclosing *resource) (*resource, error) {
	id, isResource := m["$id"].(string)
	if isResource || enclosing == nil {
		address, err := resolveURL(enclosing, id)
		if err != nil {
			return nil, invalid(at+"/$id", keywordDemand("$id", id))
		}
		if r.resources[address] != nil {
			return nil, invalid(at+"/$id", "another subschema has the same")
		}
		if len(r.resources) == maxResources || len(id) > maxIDLength {
			return nil, invalid(at+"/$id", fmt.Sprintf("a schema may have up to %d $id of up to %d characters", maxResources, maxIDLength))
		}
		name := baseURL
		if enclosing != nil {
			name += strconv.Itoa(len(r.resources))
			reduced["$id"] = name
		}
		enclosing = &resource{address, name, at}
		r.resources[address] = enclosing
	}
	for _, keyword := range []string{"$anchor", "$dynamicAnchor"} {
		name, ok := m[keyword].(string)
		if !ok {
			continue
		}
		anchor := enclosing.url + "#" + name
		if other, taken := r.anchors[anchor]; taken && other != at {
			return nil, invalid(at+"/"+keyword, "another subschema has the same anchor")
		}
		r.anchors[anchor] = at
		if keyword == "$dynamicAnchor" {
			r.dynamicAnchors++
		}
	}
	if r.dynamicAnchors > maxDynamicAnchors {
		return nil, invalid(at, fmt.Sprintf("a schema may have up to %d $dynamicAnchor", maxDynamicAnchors))
	}
	for _, keyword := range []string{"$ref", "$dynamicRef"} {
		if to, ok := m[keyword].(string); ok {
			r.found = append(r.found, reference{keyword, to, at, enclosing, reduced})
		}
	}
	return enclosing, nil
}

// resolve writes the targets of all references into the copies.
func (r *references) resolve(byPointer map[string]*subschema) error {
	dynamic := 0
	for _, ref := range r.found {
		address, err := resolveURL(ref.enclosing, ref.url)
		target := r.resources[address]
		if err != nil || target == nil {
			return invalid(ref.at+"/"+ref.keyword, "a reference must lead to a subschema of the schema itself, such as #/$defs/name")
		}
		_, fragment, _ := strings.Cut(ref.url, "#")
		place, exists := target.at, true
		switch {
		case strings.HasPrefix(fragment, "/"):
			for _, token := range splitPointer(fragment) {
				place += "/" + escapeToken(token)
			}
			exists = byPointer[place] != nil
		case fragment != "":
			place, exists = r.anchors[target.url+"#"+fragment]
		}
		if !exists {
			return invalid(ref.at+"/"+ref.keyword, quote(ref.url)+" is not a subschema of the schema")
		}
		ref.reduced[ref.keyword] = baseURL + "#" + place
		if m, ok := byPointer[place].doc.(map[string]any); ok && ref.keyword == "$dynamicRef" && m["$dynamicAnchor"] == fragment {
			ref.reduced[ref.keyword] = target.name + "#" + fragment
			dynamic++
		}
	}
	if dynamic*len(byPointer) > maxDynamicSteps {
		return errors.New("the schema has too many dynamic references for its size")
	}
	return nil
}

// resolveURL returns the URL that ref means inside a resource, without its fragment.
func resolveURL(enclosing *resource, ref string) (string, error) {
	base := baseURL
	if enclosing != nil {
		base = enclosing.url
	}
	from, err := url.Parse(base)
	if err != nil {
		return "", err
	}
	to, err := from.Parse(ref)
	if err != nil {
		return "", err
	}
	to.Fragment, to.RawFragment, to.ForceQuery = "", "", false
	return to.String(), nil
}
