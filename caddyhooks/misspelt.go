package caddyhooks

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// misspelt are words that are no keywords of JSON Schema, which ignores them, and the keywords that were probably meant.
var misspelt = map[string]string{
	"typ": "type", "types": "type", "Type": "type",
	"property": "properties", "propertys": "properties", "Properties": "properties",
	"require": "required", "requires": "required", "Required": "required",
	"item": "items", "Items": "items",
	"enums": "enum", "Enum": "enum",
	"additionalproperties": "additionalProperties", "additionalProperty": "additionalProperties", "additional_properties": "additionalProperties",
	"minlength": "minLength", "min_length": "minLength", "maxlength": "maxLength", "max_length": "maxLength",
	"minitems": "minItems", "min_items": "minItems", "maxitems": "maxItems", "max_items": "maxItems",
	"min": "minimum", "max": "maximum",
	"oneof": "oneOf", "anyof": "anyOf", "allof": "allOf",
}

// misspeltKeywords returns the misspelt keywords of a schema and of the schemas of its properties and items, sorted.
func misspeltKeywords(schema json.RawMessage) []string {
	var doc any
	if len(schema) == 0 || json.Unmarshal(schema, &doc) != nil {
		return nil
	}
	found := make(map[string]bool)
	findMisspelt(doc, found)
	return slices.Sorted(maps.Keys(found))
}

func findMisspelt(doc any, found map[string]bool) {
	schema, _ := doc.(map[string]any) // not one for true and false
	for word := range schema {
		if misspelt[word] != "" {
			found[word] = true
		}
	}
	properties, _ := schema["properties"].(map[string]any) // whose names may be any
	for _, property := range properties {
		findMisspelt(property, found)
	}
	if items := schema["items"]; items != nil {
		findMisspelt(items, found)
	}
}

// nearest returns the word that was probably meant, "" if none is near. Case does not count.
func nearest(written string, words []string) (meant string) {
	const longest = 40
	if written == "" || len(written) > longest {
		return ""
	}
	written = strings.ToLower(written)
	least := 1 + min(2, len(written)/3) // a short word is near to others by chance
	for _, word := range words {
		if d := distance(written, strings.ToLower(word)); d < least {
			meant, least = word, d
		}
	}
	return meant
}

// distance is the number of letters to add, leave out, change or swap with their neighbour to make b of a.
func distance(a, b string) int {
	before, last := []int(nil), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row := make([]int, len(b)+1)
		row[0] = i + 1
		for j := range len(b) {
			changed := 1
			if a[i] == b[j] {
				changed = 0
			}
			row[j+1] = min(last[j]+changed, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
