//go:build race

package loop

// raceDetector makes tests of sheer numbers smaller.
const raceDetector = true
