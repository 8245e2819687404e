package settings

// bodyForms are the values of body.
var bodyForms = []string{"json", "form", "auto"}
