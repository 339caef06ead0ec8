//go:build race

package kts46

// raceDetector makes tests with large numbers smaller.
const raceDetector = true
