"""What is needed to test an extension: synthetic spaces and the suites every extension passes."""
