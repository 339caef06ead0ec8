package config

// Strict is for the tests of this package.
var Strict = strict
