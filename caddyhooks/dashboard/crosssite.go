package dashboard

import "net/http"

// dashboardHeader is sent by the page with every API request. No form, image, frame or EventSource can send it, and a fetch from
// another site would have to ask before, which is never granted.
const dashboardHeader = "X-Hooks-Dashboard"

// checkSameSite refuses API requests that another site made a browser send. Requests that only read are refused, too.
func checkSameSite(r *http.Request) error {
	if r.Header.Get(dashboardHeader) != "1" {
		return refuse(http.StatusForbidden, "This API is for the page. Requests to it need the header %s: 1; scripts can use Caddy's admin "+
			"endpoint.", dashboardHeader)
	}
	for _, site := range r.Header.Values("Sec-Fetch-Site") {
		if site != "same-origin" {
			return errOtherSite
		}
	}
	// The check lets every method pass that should change nothing. To read is enough for harm here.
	asUnsafe := *r
	asUnsafe.Method = http.MethodPost
	if crossOrigin.Check(&asUnsafe) != nil {
		return errOtherSite
	}
	return nil
}

var (
	crossOrigin  http.CrossOriginProtection
	errOtherSite = refuse(http.StatusForbidden, "The request comes from another site. If there is a proxy in front of the page, let it "+
		"pass on the headers Host and Origin as they are.")
)
