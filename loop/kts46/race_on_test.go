//go:build race

package kts46

// raceDetector makes tests of sheer numbers smaller.
const raceDetector = true
