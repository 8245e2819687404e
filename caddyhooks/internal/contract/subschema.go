package contract

import "encoding/json"

// A subschema is a schema inside a schema, or the schema itself, with the costs of its evaluation. All counts are upper
// bounds.
type subschema struct {
	at   string // its JSON pointer as the library writes it
	step int    // length of the last step of the pointer, or of a reference to the subschema
	doc  any    // as it was written

	inPlace      int  // subschemas applied to the same value
	onMembers    int  // subschemas applied to each member or name of an object
	onItems      int  // subschemas applied to each item of an array
	lookups      int  // names looked up in an object
	dynamic      bool // has a reference that is resolved in every evaluation
	unique       bool // compares items with each other
	values       int  // values in const and enum
	numbers      int  // numbers among them
	numberCost   int  // of reading the most costly number
	bounds       int  // numbers to compare with
	lengths      int  // 1 if characters of strings are counted
	pattern      int  // instructions of its regular expression
	namePatterns int  // regular expressions for names
	nameProgram  int  // their instructions
	errors       int  // of its own in one evaluation
	messages     int  // bytes in their texts
}

// estimateCosts fills in the costs. The subschema may still be invalid.
func (p *subschema) estimateCosts(m map[string]any, patterns *patternsSize) (err error) {
	for keyword, value := range m {
		switch keyword {
		case "$ref", "not", "if", "then", "else":
			p.inPlace++
		case "$dynamicRef":
			p.inPlace++
			p.dynamic = true
		case "allOf", "anyOf", "oneOf", "dependentSchemas":
			p.inPlace += childCount(value)
			p.lookups += childCount(value)
		case "properties":
			p.lookups += childCount(value)
			if m["additionalProperties"] == nil { // which takes the other members
				p.onMembers++
			}
		case "additionalProperties":
			p.errors++
			p.onMembers++
		case "propertyNames", "unevaluatedProperties":
			p.onMembers++
		case "patternProperties":
			members, _ := value.(map[string]any)
			for source := range members {
				size, err := patterns.add(source)
				if err != nil {
					return invalid(p.at+"/patternProperties/"+escapeToken(source), err.Error())
				}
				p.namePatterns++
				p.nameProgram += size
			}
			p.onMembers += p.namePatterns
		case "prefixItems":
			if m["items"] == nil { // which takes the other items
				p.onItems++
			}
		case "items", "unevaluatedItems":
			p.onItems++
		case "contains":
			p.errors += 2
			p.onItems++
		case "const", "enum":
			p.errors++
			size, _ := measureDocument(value, schemaBounds)
			p.values += size.nodes
			p.numbers += size.numbers
			p.numberCost = max(p.numberCost, size.numberCost)
			if text, ok := value.(string); ok {
				p.messages += 4 * len(text)
			}
		case "multipleOf", "maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum":
			p.errors++
			p.bounds++
			if n, ok := value.(json.Number); ok {
				cost, _ := numberCost(n)
				p.numberCost = max(p.numberCost, cost)
			}
		case "maxLength", "minLength":
			p.errors++
			p.lengths = 1
		case "maxItems", "minItems", "maxProperties", "minProperties":
			p.errors++
		case "uniqueItems":
			p.errors++
			p.unique = value == true
		case "required":
			p.errors++
			p.lookups += childCount(value)
			p.messages += textBytes(value)
		case "dependentRequired", "dependencies":
			members, _ := value.(map[string]any)
			for name, others := range members {
				p.inPlace++
				p.errors += childCount(others)
				p.lookups += 1 + childCount(others)
				p.messages += textBytes(others) + (400+4*len(name))*childCount(others)
			}
		case "pattern":
			p.errors++
			if source, ok := value.(string); ok {
				if p.pattern, err = patterns.add(source); err != nil {
					return invalid(p.at+"/pattern", err.Error())
				}
				p.messages += 4 * len(source)
			}
		}
	}
	p.errors += p.inPlace
	return nil
}

// textBytes bounds the length of a message that quotes all strings in list.
func textBytes(list any) int {
	items, _ := list.([]any)
	total := 0
	for _, item := range items {
		text, _ := item.(string)
		total += 4 + 4*len(text)
	}
	return total
}
