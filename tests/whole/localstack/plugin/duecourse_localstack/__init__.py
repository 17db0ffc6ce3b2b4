"""What LocalStack needs of us where there is no container engine: a Lambda executor, and a way to DynamoDB Local."""
