// Command gen writes the Go code of dwork.proto to standard output, see `make proto`. It needs no protoc: the file is
// compiled by a library, and the generator of protoc-gen-go runs in this process, both at the versions of go.mod. It is
// a module of its own, because it is no part of what ships.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/cmd/protoc-gen-go/internal_gengo"
	"google.golang.org/protobuf/compiler/protogen"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

const source = "dwork.proto"

func main() {
	code, err := generate("..")
	if err == nil {
		_, err = os.Stdout.WriteString(code)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "cannot generate the code of %s: %v\n", source, err)
		os.Exit(1)
	}
}

// generate returns the Go code of the source file in that folder.
func generate(folder string) (string, error) {
	compiler := protocompile.Compiler{
		Resolver:       &protocompile.SourceResolver{ImportPaths: []string{folder}},
		SourceInfoMode: protocompile.SourceInfoStandard, // for the comments
	}
	files, err := compiler.Compile(context.Background(), source)
	if err != nil {
		return "", err
	}
	generator, err := protogen.Options{}.New(&pluginpb.CodeGeneratorRequest{
		FileToGenerate: []string{source},
		ProtoFile:      []*descriptorpb.FileDescriptorProto{protodesc.ToFileDescriptorProto(files[0])},
	})
	if err != nil {
		return "", err
	}
	internal_gengo.GenerateFile(generator, generator.FilesByPath[source])
	response := generator.Response()
	if response.Error != nil {
		return "", fmt.Errorf("%s", *response.Error)
	}
	return response.File[0].GetContent(), nil
}
