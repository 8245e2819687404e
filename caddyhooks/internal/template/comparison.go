package template

// warning says which comparison never gives anything else, "" if there is none. textsOnly says that all values of the body are texts.
func (f *filter) warning(textsOnly bool) string {
	if f == nil {
		return ""
	}
	if f.left != nil && f.right != nil {
		switch {
		case f.left.operator == constant && f.right.operator == constant:
			return "it compares two fixed values: a path begins with $ or @"
		case textsOnly && (f.left.comparesNoText(f.right) || f.right.comparesNoText(f.left)):
			return "the values of a form are texts: compare with one, as in '0'"
		}
	}
	for _, part := range []*filter{f.left, f.right} {
		if found := part.warning(textsOnly); found != "" {
			return found
		}
	}
	if f.query == nil {
		return ""
	}
	return selectorsWarning(f.query.selectors, textsOnly)
}

func selectorsWarning(selectors []selector, textsOnly bool) string {
	for i := range selectors {
		if found := selectors[i].filter.warning(textsOnly); found != "" {
			return found
		}
		if found := selectorsWarning(selectors[i].union, textsOnly); found != "" {
			return found
		}
	}
	return ""
}

// comparesNoText reports whether f is a number, true or false, and other a value of the body.
func (f *filter) comparesNoText(other *filter) bool {
	if f.operator != constant || other.operator != fromRoot && other.operator != fromHere {
		return false
	}
	switch f.literal.(type) {
	case decimal, bool:
		return true
	}
	return false
}
