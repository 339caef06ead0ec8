package config

// ToJSON is for the tests of this package.
var ToJSON = toJSON
