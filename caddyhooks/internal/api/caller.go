package api

// OperatorHeader names the operator of a call to the admin endpoint. `caddy hooks` sends it, and so may scripts. It is no proof, and needs
// none: whoever reaches the admin endpoint may do everything.
const OperatorHeader = "Hooks-Operator"

// MaxOperator bounds the name of an operator, which is kept and logged.
const MaxOperator = 128

// ViaHeader says how the operator came. Only `caddy hooks` sends it. It proves nothing either.
const ViaHeader = "Hooks-Via"

// InstanceHeader names the only instance that the operator wants to see. Only `caddy hooks dashboard` sends it.
const InstanceHeader = "Hooks-Instance"

const (
	ViaAdminAPI       = "admin API"
	ViaLocalDashboard = "caddy hooks dashboard"
	ViaCommand        = "caddy hooks"
	ViaReload         = "reload"
)
