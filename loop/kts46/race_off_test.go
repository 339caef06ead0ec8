//go:build !race

package kts46

const raceDetector = false
