"""Mathematics without bodies or files: rotations, spatial quantities, small and block-sparse linear algebra."""
