package contract

import "encoding/json"

// A part is one subschema and what an evaluation of it can cost. All counts are upper bounds.
type part struct {
	at   string // its JSON pointer as the library writes it
	step int    // length of the last step of that, or of a reference that leads to it
	doc  any    // as it was written

	inPlace      int  // subschemas that it applies to the same value
	onMembers    int  // how often it may apply a subschema to each member or name of an object
	onItems      int  // how often it may apply a subschema to each item of an array
	lookups      int  // names that it looks for in an object
	dynamic      bool // it has a reference that is resolved in every evaluation
	unique       bool // it compares items with each other
	values       int  // values in const and enum
	numbers      int  // numbers among them
	numberCost   int  // of reading the one that takes longest
	bounds       int  // numbers that it compares with
	lengths      int  // 1 if it counts the characters of strings
	pattern      int  // instructions of its regular expression
	namePatterns int  // regular expressions for names
	nameProgram  int  // their instructions
	errors       int  // that it may make itself in one evaluation
	messages     int  // bytes in their texts
}

// weigh fills in the costs. The subschema may still be invalid.
func (p *part) weigh(m map[string]any, patterns *patternsSize) (err error) {
	for keyword, value := range m {
		switch keyword {
		case "$ref", "not", "if", "then", "else":
			p.inPlace++
		case "$dynamicRef":
			p.inPlace++
			p.dynamic = true
		case "allOf", "anyOf", "oneOf", "dependentSchemas":
			p.inPlace += width(value)
			p.lookups += width(value)
		case "properties":
			p.lookups += width(value)
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
			p.lookups += width(value)
			p.messages += textBytes(value)
		case "dependentRequired", "dependencies":
			members, _ := value.(map[string]any)
			for name, others := range members {
				p.inPlace++
				p.errors += width(others)
				p.lookups += 1 + width(others)
				p.messages += textBytes(others) + (400+4*len(name))*width(others)
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
