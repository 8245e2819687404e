package contract

import (
	"testing"
)

const ticketSchema = `{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "required": ["id", "title", "severity", "labels", "assignee", "created", "estimate", "blocked", "url", "steps"],
  "additionalProperties": false,
  "properties": {
    "id": {"type": "string", "pattern": "^[A-Z]+-[0-9]+$"},
    "title": {"type": "string", "minLength": 1, "maxLength": 200},
    "severity": {"enum": ["low", "medium", "high", "critical"]},
    "labels": {"type": "array", "items": {"type": "string"}, "uniqueItems": true},
    "assignee": {"type": ["string", "null"]},
    "created": {"type": "string", "format": "date-time"},
    "estimate": {"type": "number", "minimum": 0, "multipleOf": 0.5},
    "blocked": {"type": "boolean"},
    "url": {"type": "string", "format": "uri"},
    "steps": {"type": "array", "items": {"$ref": "#/$defs/step"}}
  },
  "$defs": {"step": {"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}, "done": {"type": "boolean"}}}}
}`

const ticketAnswer = `{"id": "OPS-17", "title": "Disk is filling up on db-3", "severity": "high", "labels": ["disk", "postgres"], "assignee": null,
 "created": "2025-03-01T10:00:00Z", "estimate": 2.5, "blocked": false, "url": "https://tickets.example.com/OPS-17",
 "steps": [{"text": "Find the largest tables", "done": true}, {"text": "Archive old partitions"}]}`

func BenchmarkCompile(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Compile([]byte(ticketSchema)); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCompileCached(b *testing.B) {
	b.ReportAllocs()
	var cache Cache
	raw := []byte(ticketSchema)
	for b.Loop() {
		if _, err := cache.Compile(raw); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkFulfilFirstTry(b *testing.B) {
	b.ReportAllocs()
	schema := compile(b, ticketSchema)
	for b.Loop() {
		if _, err := schema.Fulfil(b.Context(), ticketAnswer, noRepair); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkFulfilFirstTryParallel(b *testing.B) {
	schema := compile(b, ticketSchema)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := schema.Fulfil(b.Context(), ticketAnswer, noRepair); err != nil {
				b.Error(err)
			}
		}
	})
}
