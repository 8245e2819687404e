package caddyhooks

import (
	"encoding/json"
	"maps"
	"slices"
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
