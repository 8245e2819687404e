package storage

import "time"

// DeliveryWait is why a delivery is not handed out now.
type DeliveryWait struct {
	Until time.Time // it is not handed out before; zero if that depends on other deliveries
	For   Obstacle
}

// Obstacle is what stands between a delivery and its next attempt.
type Obstacle string

const (
	NoObstacle   Obstacle = ""     // but for its own schedule
	EarlierOne   Obstacle = "chat" // an earlier delivery to the same chat
	PauseOfHost  Obstacle = "host" // a throttle of its host, with a pause
	OthersOfHost Obstacle = "room" // as many to its host are under way as may be
)

// PausedHost is a host or a channel that is throttled with a pause.
type PausedHost struct {
	Host  string // as Destination has it
	Until time.Time
}
